"""The check of the history against everything that can be read at the end of a run, at both isolation levels."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.histories import Violation
from tests.sim.clients.consumer import READ_COMMITTED, Consumer
from tests.sim.clients.producer import SEND_ALL, SEND_IDEMPOTENT, SEND_ONE
from tests.sim.clients.transactions import TRANSACTION
from tests.sim.history import History, Operation, TopicPartition
from tests.sim.invariants import Invariants

PROMISED = (SEND_IDEMPOTENT, SEND_ALL)


def check_history(history: History, consumers: list[Consumer], invariants: Invariants) -> None:
    """The last two consumers have read everything, one at each level."""
    everything, committed = consumers[-2:]
    assert committed.isolation_level == READ_COMMITTED
    _one_value(consumers, everything)
    sends = [operation for operation in history.operations if operation.name in (SEND_IDEMPOTENT, SEND_ALL, SEND_ONE)]
    _all_or_nothing(consumers, history)
    for partition, log in everything.seen.items():
        mine = [send for send in sends if send.input[:2] == partition]
        _nothing_lost(partition, log, mine)
        transactional = _transactional(history, partition)
        _nothing_foreign(partition, log, mine, transactional)
        _nothing_twice(partition, log, mine, transactional)
        _in_order(partition, log, mine)


def _transactional(history: History, partition: TopicPartition) -> set[bytes]:
    return {
        value.encode()
        for operation in history.operations
        if operation.name == TRANSACTION
        for *where, value in operation.input
        if tuple(where) == partition
    }


def _all_or_nothing(consumers: list[Consumer], history: History) -> None:
    """Invariants 30 and 31: a committed transaction is complete in the end, and no read_committed consumer ever sees an aborted
    one.
    """
    committed = consumers[-1]
    final = {value for log in committed.seen.values() for value in log.values()}
    ever = final.union(
        value
        for consumer in consumers
        if consumer.isolation_level == READ_COMMITTED
        for log in consumer.seen.values()
        for value in log.values()
    )
    for operation in history.operations:
        if operation.name != TRANSACTION:
            continue
        values = {value.encode() for *_, value in operation.input}
        seen = values & final
        if operation.outcome == "ok" and seen != values:
            raise Violation(
                "30", f"a committed transaction is seen without {sorted(values - seen)} of {operation.input}"
            )
        if operation.outcome == "fail" and values & ever:
            raise Violation("31", f"an aborted transaction was seen: {sorted(values & ever)} of {operation.input}")
        if seen and seen != values:
            raise Violation("30", f"a transaction is torn: seen is {sorted(seen)} of {operation.input}")


def _one_value(consumers: list[Consumer], everything: Consumer) -> None:
    """Check that all consumers read the same record at an offset (invariant 2)."""
    for consumer in consumers:
        for partition, seen in consumer.seen.items():
            log = everything.seen[partition]
            for offset, value in seen.items():
                if log.get(offset) != value:
                    raise Violation(
                        "2", f"{consumer.name} read {value!r} at {offset} of {partition}, there is {log.get(offset)!r}"
                    )


def _nothing_lost(partition: TopicPartition, log: dict[int, bytes], sends: list[Operation]) -> None:
    values = set(log.values())
    for send in sends:
        if send.name not in PROMISED or send.outcome != "ok":
            continue
        for position, value in enumerate(send.input[2]):
            expected: Any = value.encode()
            if send.output < 0:
                if expected not in values:
                    raise Violation("1", f"{value} of {partition} was acknowledged and is lost")
            elif log.get(send.output + position) != expected:
                at = send.output + position
                raise Violation("1", f"{value} was acknowledged at {at} of {partition}, there is {log.get(at)!r}")


def _nothing_foreign(
    partition: TopicPartition, log: dict[int, bytes], sends: list[Operation], sent: set[bytes]
) -> None:
    sent = sent | {value.encode() for send in sends for value in send.input[2]}
    if foreign := set(log.values()) - sent:
        raise Violation("2", f"{partition} has records that were never sent: {sorted(foreign)[:3]}")


def _nothing_twice(
    partition: TopicPartition, log: dict[int, bytes], sends: list[Operation], idempotent: set[bytes]
) -> None:
    idempotent = idempotent | {
        value.encode() for send in sends if send.name == SEND_IDEMPOTENT for value in send.input[2]
    }
    if twice := [value for value, n in Counter(log.values()).items() if n > 1 and value in idempotent]:
        raise Violation("26", f"{partition} has twice: {twice[:3]}")


def _in_order(partition: TopicPartition, log: dict[int, bytes], sends: list[Operation]) -> None:
    """Check that the batches of an idempotent producer are in the log, in the order in which it sent them (invariant 27)."""
    producers = {send.process.encode() for send in sends if send.name == SEND_IDEMPOTENT}
    last: dict[bytes, int] = {}
    for offset in sorted(log):
        producer, _, rest = log[offset].partition(b"/")
        if producer in producers:
            number = int(rest.rpartition(b"/")[2])
            if number <= last.get(producer, 0):
                raise Violation("27", f"{log[offset]!r} at {offset} of {partition} comes after number {last[producer]}")
            last[producer] = number
