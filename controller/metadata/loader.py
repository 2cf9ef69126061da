"""From the metadata log to the image: committed batches and snapshots become deltas, deltas become images, and the
publishers hear of each. The same on every node and in every role; what the active controller has not committed yet is not
seen here.

Metadata transactions (KIP-868): what lies between BeginTransaction and EndTransaction is published as one, and not at all
if it is aborted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from controller.metadata.delta import MetadataDelta
from controller.metadata.image import EMPTY, MetadataImage
from controller.metadata.publisher import Publisher
from protocol.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    decode_record,
)

log = logging.getLogger(__name__)

TRANSACTION_RECORDS = (BeginTransactionRecord, EndTransactionRecord, AbortTransactionRecord)


class CommittedBatch(Protocol):
    """What the quorum hands over; control batches are the quorum's own and have no records here."""

    base_offset: int
    last_offset: int
    epoch: int
    is_control: bool

    @property
    def records(self) -> Sequence[bytes]: ...


class SnapshotReader(Protocol):
    """A snapshot: the state below `offset`."""

    @property
    def offset(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    def __iter__(self) -> Any: ...


class MetadataLoader:
    def __init__(self) -> None:
        self.image: MetadataImage = EMPTY
        self.publishers: list[Publisher] = []
        # Of the newest committed batch, control batches included: the image may be older by what is no metadata.
        self.last_offset = -1
        self.last_epoch = -1
        # Records that this node itself appended, by epoch and offset, of which there is only one: they need not be decoded
        # again. Another leader's record at that offset is of another epoch.
        self.appended: dict[tuple[int, int], Any] = {}
        self._transaction: MetadataDelta | None = None

    @property
    def in_transaction(self) -> bool:
        return self._transaction is not None

    def add_publisher(self, publisher: Publisher) -> None:
        """It hears of everything there is at once, as one delta from nothing, and then of every change."""
        self.publishers.append(publisher)
        if self.last_offset >= 0:
            delta = MetadataDelta(EMPTY)
            delta.replay_all(self.image.to_records())
            publisher.on_metadata_update(delta, self.image)

    def handle_commit(self, batches: Iterable[CommittedBatch]) -> None:
        delta = MetadataDelta(self.image) if self._transaction is None else self._transaction
        for batch in batches:
            assert batch.base_offset == self.last_offset + 1, (
                f"batch {batch.base_offset}-{batch.last_offset} follows offset {self.last_offset}"
            )
            if not batch.is_control:
                for record in self._records(batch):
                    delta = self._replay(delta, record, batch)
            self.last_offset, self.last_epoch = batch.last_offset, batch.epoch
        if self._transaction is None:
            self._publish(delta)

    def handle_snapshot(self, reader: SnapshotReader) -> None:
        """Everything that the snapshot does not name is gone."""
        self.appended.clear()
        self._transaction = None
        delta = MetadataDelta(self.image)
        for batch in reader:
            if not batch.is_control:
                delta.replay_all(decode_record(value)[0] for value in batch.records)
        delta.finish_snapshot()
        self.last_offset, self.last_epoch = reader.offset - 1, reader.epoch
        self._publish(delta)

    def _records(self, batch: CommittedBatch) -> Iterable[Any]:
        if not self.appended:
            for value in batch.records:
                yield decode_record(value)[0]
            return
        for offset in range(batch.base_offset, batch.last_offset + 1):
            record = self.appended.pop((batch.epoch, offset), None)
            yield decode_record(batch.records[offset - batch.base_offset])[0] if record is None else record

    def _replay(self, delta: MetadataDelta, record: Any, batch: CommittedBatch) -> MetadataDelta:
        """The delta to go on with."""
        if not isinstance(record, TRANSACTION_RECORDS):
            delta.replay(record)
            return delta
        if isinstance(record, BeginTransactionRecord):
            assert self._transaction is None, f"a transaction begins inside another in batch {batch.base_offset}"
            self._publish(delta)
            self._transaction = MetadataDelta(self.image)
            return self._transaction
        transaction, self._transaction = self._transaction, None
        assert transaction is not None, f"a transaction ends that never began in batch {batch.base_offset}"
        if isinstance(record, AbortTransactionRecord):
            log.warning("A metadata transaction was aborted: %s", record.reason)
            return MetadataDelta(self.image)
        return transaction

    def _publish(self, delta: MetadataDelta) -> None:
        """Publishers hear even of nothing, because it moves the offset that a broker reports in its heartbeats."""
        image = delta.apply(self.last_offset, self.last_epoch)
        self.image = image
        for publisher in self.publishers:
            publisher.on_metadata_update(delta, image)
