"""The records of one ShareFetch: read and acquired at once, or when there are some, or when max_wait_ms is over.

All partitions of the session are looked at, each time beginning with another one, and those that have records share max_bytes evenly. What is read is
acquired in the same turn of the event loop, so there are no locks between the fetches of a share partition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla.broker.metadata_cache import LEADER_MOVED
from ottla.broker.share.fetched import Fetched, Limits
from ottla.broker.share.led_partition import LedSharePartition
from ottla.broker.share.share_session import TopicIdPartition
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.share_fetch import AcquiredRecords, PartitionData
from ottla.protocol.slotted import entity
from ottla.server.clock import TimerWheel
from ottla.server.network.context import Answer, Reply
from ottla.storage.errors import StorageFailure

Results = dict[TopicIdPartition, PartitionData]


def failed(index: int, error: KafkaError) -> PartitionData:
    """Return a failed partition of the response; it has no text, as in Kafka."""
    return PartitionData(partition_index=index, error_code=error.code)


def for_member(error: KafkaError | StorageFailure) -> KafkaError:
    """Return the error of a read as members know it. Records that are only in remote storage cannot be read without remote
    storage: members retry.
    """
    if isinstance(error, StorageFailure) or error.code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    return error


@entity
class ShareFetching:
    """A delayed ShareFetch, completed by new records, released records, or its timer."""

    member_id: str
    led: Mapping[TopicIdPartition, LedSharePartition]
    #: The errors of the partitions that are not `led`.
    errors: Results
    limits: Limits
    wheel: TimerWheel
    #: Called with the percentage of all partitions of which records were acquired.
    answered: Callable[[int], None]
    _reply: Reply[Results] | None = None
    _slot: int = -1

    def start(self) -> Answer[Results]:
        limits = self.limits
        if not self.led:
            return self.errors
        results = self._attempt(is_last=limits.max_wait_ms <= 0)
        if results is not None:
            return results
        reply: Reply[Results] = Reply()
        self._reply = reply
        reply.on_cancel = self._stop
        self._slot = self.wheel.add(self, limits.max_wait_ms)
        for led in self.led.values():
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
            self.wheel.remove(self, self._slot)
            self._slot = -1
        for led in self.led.values():
            led.unwatch(self)

    # -- Reading and acquiring ---------------------------------------------------------------------------------------

    def _attempt(self, *, is_last: bool) -> Results | None:
        """Acquire what there is, if it is enough. None: there is too little to answer with, and nothing was acquired."""
        limits = self.limits
        read: dict[TopicIdPartition, Fetched] = {}
        results = dict(self.errors)
        ready = self._ready(results)
        part = max(1, limits.max_bytes // max(1, len(ready)))
        found_bytes = counted_bytes = 0
        for at, led in ready.items():
            if found_bytes >= limits.max_bytes:
                break
            try:
                fetched = led.read(part, limits.max_records)
            except (KafkaError, StorageFailure) as error:
                results[at] = failed(at.partition, for_member(error))
                continue
            if fetched is not None:
                read[at] = fetched
                found_bytes += len(fetched.records)
                counted_bytes += fetched.counted_bytes
        has_error = len(results) > len(self.errors) or any(data.error_code in LEADER_MOVED for data in results.values())
        # The parts may be some bytes less than max_bytes together.
        is_enough = read and counted_bytes >= min(limits.min_bytes, part * len(ready))
        if not (is_last or has_error or is_enough):
            return None
        left, acquired = limits.max_records, 0
        for at, fetched in read.items():
            if left <= 0:
                break
            results[at], count = self._acquire(self.led[at], at.partition, fetched, left)
            left -= count
            acquired += count > 0
        self.answered(100 * acquired // (len(self.led) + len(self.errors)))
        return results

    def _ready(self, results: Results) -> dict[TopicIdPartition, LedSharePartition]:
        """Return the partitions that have something to acquire; `results` gets the errors of others."""
        ready = {}
        for at, led in self.led.items():
            has_more = led.has_more()
            if led.error is not None:
                results[at] = failed(at.partition, led.error)
            elif has_more:
                ready[at] = led
        return ready

    def _acquire(
        self, led: LedSharePartition, index: int, fetched: Fetched, max_records: int
    ) -> tuple[PartitionData, int]:
        acquired = led.acquire(self.member_id, fetched, max_records, self.limits)
        data = PartitionData(partition_index=index)
        if acquired:
            data.records = fetched.part_of(acquired)
            data.acquired_records = [AcquiredRecords(*each) for each in acquired]
            led.partition.bytes_out += len(data.records)
        return data, sum(last - first + 1 for first, last, _ in acquired)
