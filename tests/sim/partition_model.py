"""A partition as a plain list of batches that it must hold: the judge of the storage histories.

It knows nothing of segments, indexes or checkpoints. Everything else a log knows (producers, transactions, epochs, lookups) is
worked out here from the list alone, with rules written down a second time on purpose: `storage` is not imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from ottla.protocol.records.batch import BatchView
from ottla.protocol.records.record import Record

SEQUENCES = 2**31
REMEMBERED = 5


class Stored:
    """A batch as it is in the log."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        view = BatchView(memoryview(data))
        self.view = view
        self.base, self.last, self.epoch = view.base_offset, view.last_offset, view.partition_leader_epoch

    def __repr__(self) -> str:
        view = self.view
        who = (
            f" producer {view.producer_id}/{view.producer_epoch} seq {view.base_sequence}"
            if view.producer_id >= 0
            else ""
        )
        kind = " txn" * view.is_transactional + " marker" * view.is_control
        return f"[{self.base}-{self.last} epoch {self.epoch} {len(self.data)} B crc {view.crc:08x}{who}{kind}]"

    @cached_property
    def records(self) -> Sequence[Record]:
        return self.view.records()

    @property
    def commits(self) -> bool:
        return (self.records[0].key or b"")[3] == 1


class Sent(NamedTuple):
    """A batch of a producer."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int


@dataclass
class Producer:
    epoch: int = -1
    coordinator_epoch: int = -1
    open_since: int = -1
    last_offset: int = -1  # of its last batch or marker
    sent: list[Sent] = field(default_factory=list)

    @property
    def next_sequence(self) -> int:
        return (self.sent[-1].last_sequence + 1) % SEQUENCES if self.sent else 0


class Aborted(NamedTuple):
    producer_id: int
    first: int
    last: int


class Producers:
    """All producers of a list of batches, and the aborted transactions."""

    def __init__(self, batches: Iterable[Stored] = ()) -> None:
        self.by_id: dict[int, Producer] = {}
        self.aborted: list[Aborted] = []
        for batch in batches:
            self.add(batch)

    def add(self, batch: Stored) -> None:
        view = batch.view
        if view.producer_id < 0 or (view.is_control and view.count == 0):
            return
        producer = self.by_id.setdefault(view.producer_id, Producer())
        producer.last_offset = batch.last
        if view.producer_epoch != producer.epoch:
            producer.epoch = view.producer_epoch
            producer.sent = []
        if view.is_control:
            producer.coordinator_epoch = int.from_bytes((batch.records[0].value or b"")[2:6], "big", signed=True)
            if not batch.commits and producer.open_since >= 0:
                self.aborted.append(Aborted(view.producer_id, producer.open_since, batch.base))
            producer.open_since = -1
            return
        last = (view.base_sequence + view.last_offset_delta) % SEQUENCES
        producer.sent = [*producer.sent, Sent(view.base_sequence, last, batch.base, batch.last)][-REMEMBERED:]
        if view.is_transactional and producer.open_since < 0:
            producer.open_since = batch.base

    @property
    def first_open(self) -> int | None:
        return min((p.open_since for p in self.by_id.values() if p.open_since >= 0), default=None)


@dataclass
class PartitionModel:
    """A model of a partition: `batches` are all that were ever appended and not truncated; those before `start` may be gone from the disk."""

    batches: list[Stored] = field(default_factory=list)
    start: int = 0
    end: int = 0
    high_watermark: int = 0
    flushed: int = 0  # the end offset that a power loss keeps at least
    kept_start: int = 0  # the log start offset that a kill keeps at least
    durable_start: int = 0  # and a power loss
    cleaned_until: int = 0  # compaction may have rewritten what is below
    producers: Producers = field(default_factory=Producers)
    # The log was truncated to this end inside its cleaned part: its knowledge of earlier producers may differ.
    blurred: int = 0
    decided: int = 0  # the high watermark when the last pass began: its decisions depend only on records below
    # Where the log ended when it was opened. Snapshots of producers do not know of a transaction whose marker they are behind
    # that the marker is above the high watermark: as in Kafka the cleaner goes by it. A marker that a truncation takes away
    # is written again by the coordinator, with the same outcome; here it may be another one.
    opened_end: int = 0
    # An operation was in progress: the batches that may have been added, the lowest possible end, and the highest possible
    # start.
    tail: list[Stored] = field(default_factory=list)
    end_floor: int | None = None
    start_ceiling: int | None = None
    reset_to: int | None = None

    @property
    def last_end(self) -> int:
        """Return the end of the last batch. A log that is truncated into a gap ends after the gap, until it is opened again."""
        return self.batches[-1].last + 1 if self.batches else self.start

    def append(self, batch: Stored) -> None:
        assert batch.base >= self.end
        self.batches.append(batch)
        self.end = batch.last + 1
        self.producers.add(batch)

    def truncated_end(self, offset: int) -> int:
        """Return where the log ends after a truncation, which removes whole batches."""
        return next((b.base for b in self.batches if b.last >= offset and b.base < offset), min(offset, self.end))

    def truncate(self, offset: int) -> None:
        offset = self.truncated_end(offset)
        self.batches = [b for b in self.batches if b.last < offset]
        self.end = offset
        self.high_watermark = min(self.high_watermark, offset)
        self.flushed = min(self.flushed, offset)
        self.start = min(self.start, offset)
        self.kept_start = min(self.kept_start, offset)
        self.durable_start = min(self.durable_start, offset)
        self.cleaned_until = min(self.cleaned_until, offset)
        self.decided = min(self.decided, offset)
        self.opened_end = min(self.opened_end, offset)
        self.producers = Producers(self.batches)

    def adopt(self, found: Sequence[Stored]) -> None:
        """Treat the result of compaction as the log's content from now on."""
        self.batches = [*(batch for batch in self.batches if batch.last < self.start), *found]
        self.producers = Producers(self.batches)
        self.blurred = self.end

    def reset(self, offset: int) -> None:
        self.batches = []
        self.end = self.start = self.high_watermark = self.flushed = offset
        self.kept_start = self.durable_start = offset
        self.cleaned_until = self.blurred = self.decided = self.opened_end = 0
        self.producers = Producers()

    def settle(self) -> None:
        """No operation is in progress."""
        self.tail, self.end_floor, self.start_ceiling, self.reset_to = [], None, None, None

    def readable(self, start: int | None = None) -> list[Stored]:
        at = self.start if start is None else start
        return [batch for batch in self.batches if batch.last >= at]


def committed_records(batches: Sequence[Stored], aborted: Iterable[Aborted], start: int, end: int) -> list[Record]:
    """Return the records of [start, end) for a read_committed consumer, by Kafka's rule, given the aborted transactions in the
    response.
    """
    waiting = sorted((txn for txn in aborted if txn.last >= start), key=lambda txn: txn.first)
    skipping: set[int] = set()
    seen: list[Record] = []
    for batch in batches:
        view = batch.view
        while waiting and waiting[0].first <= batch.last:
            skipping.add(waiting.pop(0).producer_id)
        if view.is_control:
            if view.count and not batch.commits:
                skipping.discard(view.producer_id)
        elif not (view.is_transactional and view.producer_id in skipping):
            seen += [record for record in batch.records if start <= record.offset < end]
    return seen


def fold(records: Iterable[Record]) -> dict[bytes, bytes]:
    """Return the last value of every key; a tombstone is no value."""
    last: dict[bytes, bytes] = {}
    for record in records:
        key = bytes(record.key or b"")
        if record.value is None:
            last.pop(key, None)
        else:
            last[key] = bytes(record.value)
    return last
