"""The metadata loader: committed batches and snapshots become deltas, deltas become images, and the publishers are notified
of each. It is the same on every node and in every role; the active controller's uncommitted records are not loaded.

A log batch and a whole snapshot are both a delta. A delta may have every partition of a large cluster, which is seconds of work.
So loader and publishers work in slices (`protocol.work`): the loader makes the next image beside the current one and swaps them,
and a publisher applies its partitions one after the other, as Kafka's does on a thread of its own beside the requests. The
quorum's delivery (`controller.raft.delivery`) runs each slice in a turn of the event loop, and begins the next delivery after the
last one.

Metadata transactions (KIP-868): all records between BeginTransaction and EndTransaction are published as one delta, or not
at all if the transaction is aborted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from ottla.controller.metadata.acls import AclsDelta
from ottla.controller.metadata.image import EMPTY, REPLAY_UNITS, MetadataDelta, MetadataImage
from ottla.controller.metadata.topics import TopicImage
from ottla.protocol.internal_topics.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ClearElrRecord,
    EndTransactionRecord,
    MetadataRecord,
    decode_record,
)
from ottla.protocol.work import Turn, Work
from ottla.server.authorization.authorizer import StandardAuthorizer
from ottla.server.quotas.clients import ClientQuotas

#: The size of a slice, in units of about a microsecond: one turn may have several slices, one for each publisher.
UNITS_A_TURN = 4_000


def new_turn() -> Turn:
    return Turn(UNITS_A_TURN)


class Publisher(Protocol):
    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> Work[None] | None:
        """Metadata has changed: `delta.image` is the image before, `image` the one after. It is called in log order, for committed metadata only.

        If it returns work, that is completed before the next publisher is called.
        """
        ...


class AclPublisher:
    """Publishes the access control entries to the node's authorizer, on brokers and controllers.

    The authorizer gets the entries once they are complete, when everything committed before this node's start has been read. A DENY
    entry might be among those that are not yet read.
    """

    def __init__(self, authorizer: StandardAuthorizer, caught_up: Callable[[], bool]) -> None:
        self._authorizer = authorizer
        self._caught_up = caught_up

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if not self._authorizer.loaded.is_set():
            if self._caught_up():
                self._authorizer.change((), image.acls.entries.values())
        elif delta.acls is not None:
            self._change(delta.acls)

    def _change(self, delta: AclsDelta) -> None:
        before = delta.image.entries
        removed = [before[entry_id] for entry_id in delta.changes if entry_id in before]
        added = [entry for entry in delta.changes.values() if entry is not None]
        self._authorizer.change(removed, added)


class QuotaPublisher:
    """Publishes the client quotas to the node that keeps them, on brokers and controllers."""

    def __init__(self, quotas: ClientQuotas) -> None:
        self._quotas = quotas

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if delta.client_quotas is not None:
            self._quotas.update(image.client_quotas.entities)


log = logging.getLogger(__name__)

#: The measured cost of any batch, in units of a turn's worth.
BATCH_UNITS = 10

TRANSACTION_RECORDS = (BeginTransactionRecord, EndTransactionRecord, AbortTransactionRecord)


class CommittedBatch(Protocol):
    """A committed batch from the quorum; control batches are the quorum's own and have no records here."""

    base_offset: int
    last_offset: int
    epoch: int
    is_control: bool

    @property
    def records(self) -> Sequence[bytes]: ...


class SnapshotReader(Protocol):
    """A snapshot of the state below `offset`."""

    @property
    def offset(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    def values(self) -> Iterable[bytes]:
        """Yield the values of the data records, which are read one by one."""


class MetadataLoader:
    """Loads batches and snapshots, and introduces publishers. Each of these is work in slices, one at a time."""

    def __init__(self) -> None:
        self.image: MetadataImage = EMPTY
        self.publishers: list[Publisher] = []
        # The last offset of the newest published batch, control batches included: the image's offset may be lower, because
        # control batches are not metadata.
        self.last_offset = -1
        self.last_epoch = -1
        # Records that this node itself appended, by epoch and offset: they need not be decoded again. The key is unique, because
        # another leader's record at that offset has another epoch.
        self.appended: dict[tuple[int, int], MetadataRecord] = {}
        self._transaction: MetadataDelta | None = None

    @property
    def in_transaction(self) -> bool:
        return self._transaction is not None

    def add_publisher(self, publisher: Publisher) -> None:
        """Add a publisher that reads the image: it gets the current image with an empty delta, and then every change."""
        self.publishers.append(publisher)
        if self.last_offset >= 0:
            work = publisher.on_metadata_update(MetadataDelta(self.image), self.image)
            assert work is None, "a publisher whose work takes several turns must be introduced"

    def introduce(self, publisher: Publisher) -> Work[None]:
        """Add a publisher that uses the deltas: it gets the current image as one delta from the empty image, and then every change."""
        self.publishers.append(publisher)
        if self.last_offset >= 0:
            image = self.image
            delta = yield from MetadataDelta.of_everything(image, new_turn())
            yield from _notify(publisher, delta, image)

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
                    elif isinstance(record, ClearElrRecord):
                        yield from delta.clearing_elr(record, turn)
                    else:
                        delta.replay(record)
                    if turn.spend(REPLAY_UNITS):
                        yield None
            offset, epoch = batch.last_offset, batch.epoch
        if self._transaction is None:
            yield from self._publish(delta, offset, epoch)
        self.last_offset, self.last_epoch = offset, epoch
        replaced = list(delta.deleted_topics.values())
        del delta
        yield from _freeing(replaced)

    def handle_snapshot(self, reader: SnapshotReader) -> Work[None]:
        """Load a snapshot: everything that it does not have is removed. It is published after all of it has been read."""
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
        """Handle the begin and end of a metadata transaction; return the delta to continue with. `offset` is that of the previous batch."""
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
        """Publish a delta, also an empty one, because it advances the offset that a broker reports in its heartbeats."""
        image = self.image = yield from delta.applying(offset, epoch, new_turn())
        for publisher in tuple(self.publishers):
            yield from _notify(publisher, delta, image)


def _notify(publisher: Publisher, delta: MetadataDelta, image: MetadataImage) -> Work[None]:
    work = publisher.on_metadata_update(delta, image)
    if work is not None:
        yield from work


def _freeing(replaced: list[TopicImage]) -> Work[None]:
    """Free the replaced topics, some partitions in each turn: with the last reference to the former image all of
    it is freed at once, and 200,000 partitions take 90 ms."""
    turn = new_turn()
    while replaced:
        partitions = list(replaced.pop().partitions.values())
        while partitions:
            partitions.pop()
            if turn.spend(1):
                yield None
