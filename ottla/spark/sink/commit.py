"""The driver's part of an exactly-once write: it decides a batch, commits the transactions of its tasks, and aborts leftover
transactions.

Spark may run this in a new process for each batch, and again for a batch that was committed: so all its state is in Kafka.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial

from ottla.client.idempotence import INIT_VERSION
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.list_transactions import ListTransactionsRequest
from ottla.spark.client.cluster import TRANSACTION, BlockingCluster
from ottla.spark.client.outcomes import commit_or_find
from ottla.spark.client.producer import SinkTransaction, WrittenTransaction, end
from ottla.spark.errors import ConnectorError, check
from ottla.spark.sink.decisions import Claim, Decisions, SinkDecision
from ottla.spark.sink.options import SinkOptions
from ottla.spark.sink.task import PreparedTask

ONGOING = "Ongoing"


def commit(options: SinkOptions, messages: Iterable[PreparedTask | None], batch: int) -> None:
    """Make the batch final and commit it. If it raises ConnectorError, Spark runs the batch again, which completes it."""
    done = [each for each in messages if each is not None]
    prepared = {each.place.partition: each.written for each in done if each.written is not None}
    if not options.is_exactly_once or not done:
        return
    with BlockingCluster(options.client) as cluster:
        if done[0].place.batch < 0:
            _commit_undecided(cluster, prepared.values())
            return
        _, sink, run, _, _ = done[0].place
        claim = _claim(cluster, options, sink)
        before = claim.last
        if before is not None and before.batch >= batch:
            # Spark repeats a batch that was decided; or another driver decided it after this one's tasks had begun.
            repairs = {
                each.place.partition: each.written
                for each in done
                if each.written is not None and each.repaired is not None
                if each.repaired == before.prepared.get(each.place.partition)
            }
            _abort(cluster, (each for number, each in prepared.items() if number not in repairs))
            if before.batch > batch:
                return
            prepared, kept = repairs, before.prepared
        else:
            kept = {}
        if not prepared and not kept:
            return  # no rows: nothing to remember
        decided = SinkDecision(batch, run, {**kept, **prepared})
        if prepared:
            _check_open(cluster, prepared.values())
            claim.write(decided, time.time_ns() // 1_000_000)
        _commit_all(cluster, decided)
        abort_left_over(cluster, f"{options.id_prefix}{sink}/")


def _claim(cluster: BlockingCluster, options: SinkOptions, sink: str) -> Claim:
    decisions = Decisions(cluster, options.batches_topic, sink)
    decisions.ensure()
    return decisions.claim(f"{options.id_prefix}{sink}/driver")


def _commit_all(cluster: BlockingCluster, decided: SinkDecision) -> None:
    lost = [number for number, each in sorted(decided.prepared.items()) if not commit_or_find(cluster, each)]
    if lost:
        raise ConnectorError(
            f"batch {decided.batch}: the transactions of tasks {lost} were aborted before they were committed",
            "start the query again: it writes these rows again. A higher transactionTimeoutMs avoids it",
        )


def _commit_undecided(cluster: BlockingCluster, prepared: Iterable[WrittenTransaction]) -> None:
    """Commit a batch that has no number. It is committed completely, unless the driver dies in between."""
    for transaction, _, _ in prepared:
        if not end(cluster, transaction, commit=True):
            raise ConnectorError(
                f"transaction {transaction.transactional_id} ended before it was committed: the write is incomplete"
            )


def abort(options: SinkOptions, messages: Iterable[PreparedTask | None], batch: int) -> None:
    """Abort what the tasks have prepared or begun, unless the batch is decided: then the next run of the batch commits it."""
    done = [each for each in messages if each is not None]
    prepared = [each.written for each in done if each.written is not None]
    if not prepared:
        return
    place = done[0].place
    with BlockingCluster(options.client) as cluster:
        last = _claim(cluster, options, place.sink).last if place.batch >= 0 else None
        if last is not None and last.batch == batch:
            _abort(cluster, (each for each in prepared if each not in last.prepared.values()))
            return
        _abort(cluster, prepared)
        if place.batch >= 0:
            abort_left_over(cluster, f"{options.id_prefix}{place.sink}/")


def _abort(cluster: BlockingCluster, prepared: Iterable[WrittenTransaction]) -> None:
    for each in prepared:
        end(cluster, each.transaction, commit=False)


def _check_open(cluster: BlockingCluster, prepared: Iterable[WrittenTransaction]) -> None:
    """Raise ConnectorError if a transaction is no longer as its task has left it. After the decision that would be too late."""
    for transaction, _, _ in prepared:
        if _open(cluster, transaction.transactional_id) != transaction:
            raise ConnectorError(
                f"transaction {transaction.transactional_id} has ended before its batch was complete",
                "a task ran twice, or longer than transactionTimeoutMs; the batch is written again when the query is started again",
            )


def abort_left_over(cluster: BlockingCluster, prefix: str) -> None:
    """Abort open transactions of this sink whose tasks or drivers have died or were killed (Spark kills the slower of two
    attempts of a task): they would hold back read_committed readers until their timeout. Brokers before Kafka 3.0 do not list
    them.

    Another driver may have committed a listed transaction meanwhile. A new epoch would hide that, and the rows would be written
    again. Therefore a producer is fenced only if this call has aborted its transaction, with the epoch that it had (KIP-360).
    """
    cluster.topics([])
    for node in cluster.brokers:
        response = cluster.retry(partial(cluster.call_node, node, ListTransactionsRequest([ONGOING])))
        check(f"transactions of broker {node}", response.error_code)
        for row in response.transaction_states:
            name = row.transactional_id
            left = _open(cluster, name) if name.startswith(prefix) else None
            if left is not None and end(cluster, left, commit=False):
                request = InitProducerIdRequest(name, 60_000, left.producer_id, left.producer_epoch)
                cluster.retry(partial(cluster.ask_coordinator, name, TRANSACTION, request, INIT_VERSION))


def _open(cluster: BlockingCluster, name: str) -> SinkTransaction | None:
    """Return the open transaction of a transactional id, or None."""

    def attempt() -> SinkTransaction | None:
        request = DescribeTransactionsRequest([name])
        (row,) = cluster.ask_coordinator(name, TRANSACTION, request).transaction_states
        check(f"transaction {name}", row.error_code)
        is_open = row.transaction_state == ONGOING
        return SinkTransaction(name, row.producer_id, row.producer_epoch) if is_open else None

    return cluster.retry(attempt)
