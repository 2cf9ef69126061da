"""The records of one ShareFetch: read and acquired at once, or when there are some, or when max_wait_ms is over.

All partitions of the session are looked at, each time beginning with another one, and share max_bytes evenly. What is read is
acquired in the same turn of the event loop, so there are no locks between the fetches of a share partition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.broker.metadata_cache import LEADER_MOVED
from ottla.broker.share.fetched import Fetched
from ottla.broker.share.led_partition import LedSharePartition
from ottla.broker.share.share_session import TopicPartition
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.share_fetch import AcquiredRecords, PartitionData
from ottla.server.network.reply import Answer, Reply
from ottla.server.timer_wheel import TimerWheel
from ottla.storage.errors import StorageFailure

Results = dict[TopicPartition, PartitionData]


class Limits(NamedTuple):
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    #: KIP-1206: `max_records` is not exceeded for the sake of whole batches.
    strict: bool


def failed(index: int, error: KafkaError) -> PartitionData:
    """A failed partition of the response; it has no text, as in Kafka."""
    return PartitionData(partition_index=index, error_code=error.code)


class ShareFetching:
    """A delayed ShareFetch, completed by new records, released records, or its timer."""

    __slots__ = ("_answered", "_errors", "_led", "_limits", "_member_id", "_reply", "_slot", "_wheel")

    def __init__(
        self,
        member_id: str,
        led: Mapping[TopicPartition, LedSharePartition],
        errors: Results,
        limits: Limits,
        wheel: TimerWheel,
        answered: Callable[[int], None],
    ) -> None:
        """Takes the `errors` of the partitions that are not `led`; `answered` is given the percentage of all that records were acquired of."""
        self._member_id = member_id
        self._led = led
        self._errors = errors
        self._limits = limits
        self._wheel = wheel
        self._answered = answered
        self._reply: Reply[Results] | None = None
        self._slot = -1

    def start(self) -> Answer[Results]:
        limits = self._limits
        if not self._led:
            return self._errors
        results = self._attempt(is_last=limits.max_wait_ms <= 0)
        if results is not None:
            return results
        reply: Reply[Results] = Reply()
        self._reply = reply
        reply.on_cancel = self._stop
        self._slot = self._wheel.add(self, limits.max_wait_ms)
        for led in self._led.values():
            led.watch(self)
        return reply

    def wake(self) -> None:
        """A share partition has changed."""
        if self._reply is not None and (results := self._attempt(is_last=False)) is not None:
            self._complete(results)

    def expire(self) -> None:
        """max_wait_ms is over."""
        self._slot = -1
        if self._reply is None:
            return
        try:
            results: Results | KafkaError = self._attempt(is_last=True) or {}
        except Exception:
            self._complete(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
            raise
        self._complete(results)

    def _complete(self, outcome: Results | KafkaError) -> None:
        reply = self._reply
        self._stop()
        assert reply is not None
        reply.complete(outcome)

    def _stop(self) -> None:
        self._reply = None
        if self._slot >= 0:
            self._wheel.remove(self, self._slot)
            self._slot = -1
        for led in self._led.values():
            led.unwatch(self)

    # -- Reading and acquiring ---------------------------------------------------------------------------------------

    def _attempt(self, *, is_last: bool) -> Results | None:
        """None: there is too little to answer with, and nothing was acquired."""
        limits = self._limits
        read: dict[TopicPartition, Fetched] = {}
        results = dict(self._errors)
        found_bytes = 0
        part = max(1, limits.max_bytes // len(self._led))
        for at, led in self._led.items():
            if found_bytes >= limits.max_bytes:
                break
            try:
                fetched = led.read(part, limits.max_records)
                if led.error is not None:
                    raise led.error
            except KafkaError as error:
                results[at] = failed(at.partition, error)
                continue
            except StorageFailure:
                results[at] = failed(at.partition, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
                continue
            if fetched is not None:
                read[at] = fetched
                found_bytes += len(fetched.records)
        has_error = len(results) > len(self._errors) or any(
            data.error_code in LEADER_MOVED for data in results.values()
        )
        if not (is_last or has_error or (read and found_bytes >= limits.min_bytes)):
            return None
        left, acquired = limits.max_records, 0
        for at, fetched in read.items():
            if left <= 0:
                break
            results[at], count = self._acquire(self._led[at], at.partition, fetched, left)
            left -= count
            acquired += count > 0
        self._answered(100 * acquired // (len(self._led) + len(self._errors)))
        return results

    def _acquire(
        self, led: LedSharePartition, index: int, fetched: Fetched, max_records: int
    ) -> tuple[PartitionData, int]:
        acquired = led.acquire(
            self._member_id,
            fetched,
            max_records=max_records,
            batch_size=self._limits.batch_size,
            strict=self._limits.strict,
        )
        data = PartitionData(partition_index=index)
        if acquired:
            data.records = fetched.part_of(acquired)
            data.acquired_records = [AcquiredRecords(*each) for each in acquired]
            led.partition.bytes_out += len(data.records)
        return data, sum(last - first + 1 for first, last, _ in acquired)
