"""From the metadata log to the image: committed batches and snapshots become deltas, deltas become images, and the
publishers hear of each. The same on every node and in every role; what the active controller has not committed yet is not
seen here.

Metadata transactions (KIP-868): what lies between BeginTransaction and EndTransaction is published as one, and not at all
if it is aborted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Protocol

from ottla.controller.metadata.delta import REPLAY_UNITS, MetadataDelta
from ottla.controller.metadata.image import EMPTY, MetadataImage
from ottla.controller.metadata.publisher import Publisher, new_turn
from ottla.controller.metadata.topics import TopicImage
from ottla.protocol.internal_topics.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    MetadataRecord,
    decode_record,
)
from ottla.protocol.work import Work

log = logging.getLogger(__name__)

#: Units of a turn's worth, as measured: whatever a batch costs.
BATCH_UNITS = 10

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
    def values(self) -> Iterable[bytes]:
        """Of its data records, each read when it is its turn."""


class MetadataLoader:
    """What it does with a batch, a snapshot or a new publisher is work in slices, one piece of it at a time."""

    def __init__(self) -> None:
        self.image: MetadataImage = EMPTY
        self.publishers: list[Publisher] = []
        # Of the newest committed batch that the publishers know, control batches included: the image may be older by what
        # is no metadata.
        self.last_offset = -1
        self.last_epoch = -1
        # Records that this node itself appended, by epoch and offset, of which there is only one: they need not be decoded
        # again. Another leader's record at that offset is of another epoch.
        self.appended: dict[tuple[int, int], MetadataRecord] = {}
        self._transaction: MetadataDelta | None = None

    @property
    def in_transaction(self) -> bool:
        return self._transaction is not None

    def add_publisher(self, publisher: Publisher) -> None:
        """For one that looks at the image: it gets the present one with a delta that says nothing, and then every change."""
        self.publishers.append(publisher)
        if self.last_offset >= 0:
            work = publisher.on_metadata_update(MetadataDelta(self.image), self.image)
            assert work is None, "what takes several turns is to be introduced"

    def introduce(self, publisher: Publisher) -> Work[None]:
        """For one that follows the deltas: it gets everything there is as one delta from nothing, and then every change."""
        self.publishers.append(publisher)
        if self.last_offset >= 0:
            image = self.image
            delta = yield from MetadataDelta.of_everything(image, new_turn())
            yield from _tell(publisher, delta, image)

    def handle_commit(self, batches: Iterable[CommittedBatch]) -> Work[None]:
        delta = MetadataDelta(self.image) if self._transaction is None else self._transaction
        offset, epoch, turn = self.last_offset, self.last_epoch, new_turn()
        for batch in batches:
            assert batch.base_offset == offset + 1, (
                f"batch {batch.base_offset}-{batch.last_offset} follows offset {offset}"
            )
            if turn.spend(BATCH_UNITS):
                yield None
            if not batch.is_control:
                for record in self._records(batch):
                    if isinstance(record, TRANSACTION_RECORDS):
                        delta = yield from self._bracket(delta, record, offset, epoch)
                    else:
                        delta.replay(record)
                    if turn.spend(REPLAY_UNITS):
                        yield None
            offset, epoch = batch.last_offset, batch.epoch
        if self._transaction is None:
            yield from self._publish(delta, offset, epoch)
        self.last_offset, self.last_epoch = offset, epoch

    def handle_snapshot(self, reader: SnapshotReader) -> Work[None]:
        """Everything that the snapshot does not name is gone. Until all of it has been read, nothing is seen of it."""
        self.appended.clear()
        self._transaction = None
        delta, turn = MetadataDelta(self.image), new_turn()
        for value in reader.values():
            delta.replay(decode_record(value)[0])
            if turn.spend(REPLAY_UNITS):
                yield None
        delta.finish_snapshot()
        yield from self._publish(delta, reader.offset - 1, reader.epoch)
        self.last_offset, self.last_epoch = reader.offset - 1, reader.epoch
        replaced = [*delta.deleted_topics.values(), *(topic.image for topic in delta.changed_topics.values())]
        del delta
        yield from _freeing(replaced)

    def _records(self, batch: CommittedBatch) -> Iterable[MetadataRecord]:
        if not self.appended:
            for value in batch.records:
                yield decode_record(value)[0]
            return
        for offset in range(batch.base_offset, batch.last_offset + 1):
            record = self.appended.pop((batch.epoch, offset), None)
            yield decode_record(batch.records[offset - batch.base_offset])[0] if record is None else record

    def _bracket(self, delta: MetadataDelta, record: MetadataRecord, offset: int, epoch: int) -> Work[MetadataDelta]:
        """The delta to go on with. `offset` is that of the batch before."""
        if isinstance(record, BeginTransactionRecord):
            assert self._transaction is None, f"a transaction begins inside another after offset {offset}"
            yield from self._publish(delta, offset, epoch)
            self._transaction = MetadataDelta(self.image)
            return self._transaction
        transaction, self._transaction = self._transaction, None
        assert transaction is not None, f"a transaction ends that never began after offset {offset}"
        if isinstance(record, AbortTransactionRecord):
            log.warning("A metadata transaction was aborted: %s", record.reason)
            return MetadataDelta(self.image)
        return transaction

    def _publish(self, delta: MetadataDelta, offset: int, epoch: int) -> Work[None]:
        """Publishers hear even of nothing, because it moves the offset that a broker reports in its heartbeats."""
        image = self.image = yield from delta.applying(offset, epoch, new_turn())
        for publisher in tuple(self.publishers):
            yield from _tell(publisher, delta, image)


def _tell(publisher: Publisher, delta: MetadataDelta, image: MetadataImage) -> Work[None]:
    work = publisher.on_metadata_update(delta, image)
    if work is not None:
        yield from work


def _freeing(replaced: list[TopicImage]) -> Work[None]:
    """Let go of topics as they were before, some partitions in each turn: with the last reference to the former image all of
    it is freed at once, and 200,000 partitions take 90 ms."""
    turn = new_turn()
    while replaced:
        partitions = list(replaced.pop().partitions.values())
        while partitions:
            partitions.pop()
            if turn.spend(1):
                yield None
