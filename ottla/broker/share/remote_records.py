"""The records of one share partition that are only in remote storage: read off the loop, and kept until they are acquired (KIP-405, KIP-932).

A share fetch that finds its records there begins a read and waits like one that finds none; it is woken when they have come. One read is
under way for a share partition at a time, for all of its members. If max_wait_ms is over before the read ends, the next fetch
finds the records here. They are used only by a fetch of the same log, offset and isolation level, which acquires them by the
state at that time.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, Protocol, TypeVar

from ottla.broker.replication.partition import Partition
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import BatchView
from ottla.storage.log.log import Log
from ottla.storage.log_files import AbortedTxn

T = TypeVar("T")


class TieredBatches(Protocol):
    """Complete batches that have passed their CRC, and the aborted transactions in them."""

    @property
    def records(self) -> bytes: ...

    @property
    def aborted(self) -> list[AbortedTxn]: ...


class TieredReads(Protocol):
    """The interface to the reads of remote storage (broker/tiers/tier_reads.py). Both raise KafkaError."""

    def read(
        self, partition: Partition, own: Log, offset: int, max_bytes: int, *, read_committed: bool
    ) -> Coroutine[Any, Any, TieredBatches]: ...

    def search(
        self, partition: Partition, own: Log, timestamp: int
    ) -> Coroutine[Any, Any, tuple[int, int, int] | None]: ...

    def begin(
        self, partition: Partition, work: Coroutine[Any, Any, T], done: Callable[[T | KafkaError], None]
    ) -> None: ...


class RemoteBatches(NamedTuple):
    """Batches for a share fetch, and the first offset after them."""

    records: memoryview
    next_offset: int
    aborted: list[AbortedTxn]


class _Question(NamedTuple):
    """The question that a read was begun for."""

    log: Log
    offset: int
    read_committed: bool


class RemoteRecords:
    """The records that were read last from remote storage for a share partition."""

    __slots__ = ("_changed", "_found", "_partition", "_question", "_reads")

    def __init__(self, reads: TieredReads, partition: Partition, changed: Callable[[], None]) -> None:
        """Take `changed`, which is called when a read has ended."""
        self._reads, self._partition, self._changed = reads, partition, changed
        self._question: _Question | None = None
        #: The answer, or None during the read.
        self._found: TieredBatches | KafkaError | None = None

    def read(self, own: Log, offset: int, end: int, max_bytes: int, *, read_committed: bool) -> RemoteBatches | None:
        """Return batches from the one with `offset` on and below `end`. None: they are being read, and `changed` is called then.

        Raises:
            KafkaError: they cannot be read now.
        """
        question, found = self._question, self._found
        if question is not None and found is None:
            return None
        self._question = self._found = None
        if question is not None and question.log is own and question.read_committed == read_committed:
            if isinstance(found, KafkaError):
                if question.offset == offset:
                    raise found
            elif found is not None and found.records and question.offset <= offset:
                batches = _between(found, offset, end, max_bytes)
                if batches.records:
                    self._question, self._found = question, found
                    return batches
                if question.offset == offset:
                    # Another read would find the same.
                    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        self._question = _Question(own, offset, read_committed)
        work = self._reads.read(self._partition, own, offset, max_bytes, read_committed=read_committed)
        self._reads.begin(self._partition, work, self._read)
        return None

    def _read(self, found: TieredBatches | KafkaError) -> None:
        self._found = found
        self._changed()


def _between(found: TieredBatches, offset: int, end: int, max_bytes: int) -> RemoteBatches:
    """Return the batches from the one with `offset` on, as far as they end by `end`: at least one of these, and more up to `max_bytes`."""
    records = memoryview(found.records)
    start = position = 0
    following = offset
    while position < len(records):
        batch = BatchView(records, position)
        size = batch.size
        if batch.last_offset < offset:
            start = position = position + size
            continue
        if batch.next_offset > end or (position > start and position + size - start > max_bytes):
            break
        position += size
        following = batch.next_offset
    return RemoteBatches(records[start:position], following, found.aborted)
