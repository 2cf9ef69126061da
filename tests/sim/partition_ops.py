"""The random changes of a partition: appends as a leader and as a follower, and everything that changes a log.

Every function does one thing to the log and the same to its model. While it is going on the model says what a crash in its
middle may leave; `settle` ends that. A `StorageFailure` goes to the caller.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field

import pytest

from ottla.protocol.errors import KafkaError
from ottla.protocol.records.batch import LOG_OVERHEAD_BYTES
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.control import end_txn_batch
from ottla.storage.cleaner import cleaner_pass
from ottla.storage.cleaner.cleaner import Cleaner
from ottla.storage.directories.logs import Logs
from ottla.storage.errors import UnexpectedAppendOffset
from ottla.storage.log.log import Log, Origin
from ottla.storage.log.retention import delete_records
from ottla.storage.log.truncate import truncate_fully_and_start_at, truncate_to
from ottla.storage.log.trusted_append import append_trusted
from tests.protocol.records.reference import patch_offset
from tests.sim.partition_checks import batches_of, check_batches, check_pass
from tests.sim.partition_model import SEQUENCES, PartitionModel, Producer, Producers, Stored
from tests.storage.cleaner.cleaning import steps_done
from tests.storage.logs_for_tests import append_as

PRODUCERS = 5
#: A batch of one record, but for its value.
PLAIN_BATCH_BYTES = 70
#: The key of a COMMIT marker: the cleaner must not take markers for records of this key.
MARKER_KEY = b"\x00\x00\x00\x01"


@dataclass
class Partition:
    """One partition of the node under test."""

    name: str
    topic_id: bytes
    model: PartitionModel = field(default_factory=PartitionModel)
    log: Log | None = None
    leads: bool = True
    epoch: int = 0


class Operations:
    """The operations, and the chance and time that they share."""

    batch_bytes = 0  # if given, all batches have this size and no producer
    unclean = 0.15  # the share of truncations that follow an unclean election

    def __init__(self, rng: random.Random, now_ms: int) -> None:
        self.rng, self.now_ms = rng, now_ms
        self.written = 0
        self.highest_epoch = 0  # of all producers and coordinators
        self.large = False  # whether segments are large enough for large batches
        self._seldom: list[bytes] = []  # keys written once: each is deleted soon, or never written again

    # Making batches

    def _rows(self, count: int) -> list[tuple[bytes | None, bytes | None, int]]:
        rng, rows = self.rng, []
        for _ in range(count):
            self.written += 1
            value = b"%d:" % self.written + rng.randbytes(4) * rng.choice((0, 5, 40, 90))
            if count == 1 and self.large and rng.random() < 0.3:
                value *= 9000 // len(value)  # above storage.segment.segment.WRITE_BYTES_MIN
            key, deleted = self._key()
            rows.append((key, None if deleted else value, self.now_ms + rng.randrange(-40, 40)))
        return rows

    def _key(self) -> tuple[bytes, bool]:
        """A key, and whether it is deleted now."""
        rng = self.rng
        if rng.random() < 0.75:
            key = MARKER_KEY if rng.random() < 0.05 else b"key%d" % rng.randrange(12)
            return key, rng.random() < 0.08
        if self._seldom and rng.random() < 0.4:
            return self._seldom.pop(rng.randrange(len(self._seldom))), True
        key = b"seldom%d" % self.written
        self._seldom = [*self._seldom[-5:], key]
        return key, False

    def _next_batch(self, model: PartitionModel, log: Log | None = None) -> tuple[bytes, bool]:
        """Return a batch that a client or a coordinator could send to this leader now, and whether it is a marker."""
        batch, is_marker = self._new_batch(model, log)
        producers = Producers([Stored(batch)]).by_id.values()
        epochs = [epoch for producer in producers for epoch in (producer.epoch, producer.coordinator_epoch)]
        self.highest_epoch = max(self.highest_epoch, *epochs, 0)
        return batch, is_marker

    def _new_batch(self, model: PartitionModel, log: Log | None) -> tuple[bytes, bool]:
        rng = self.rng
        if self.batch_bytes:
            self.written += 1
            value = (b"%d:" % self.written).ljust(self.batch_bytes - PLAIN_BATCH_BYTES, b".")
            return build_batch([(None, value, self.now_ms)]), False
        kind = rng.choice(("plain", "plain", "idempotent", "idempotent", "transactional", "marker"))
        producer_id = rng.randrange(PRODUCERS)
        producer = model.producers.by_id.get(producer_id, Producer())
        if kind == "plain":
            return build_batch(self._rows(rng.randint(1, 4))), False
        if 0 <= producer.last_offset < model.blurred:
            return self._fence(producer_id), True
        if kind == "marker":
            if producer.open_since >= 0 or rng.random() < 0.1:
                bump = rng.random() < 0.2
                coordinator_epoch = max(producer.coordinator_epoch, 0) + (rng.random() < 0.1)
                return end_txn_batch(
                    committed=rng.random() < 0.5,
                    producer_id=producer_id,
                    producer_epoch=max(producer.epoch, 0) + bump,
                    coordinator_epoch=coordinator_epoch,
                    timestamp=self.now_ms,
                ), True
            kind = "transactional"
        epoch, sequence = max(producer.epoch, 0), producer.next_sequence
        known = log.producers.states.get(producer_id) if log is not None else None
        # A marker may be left of a producer whose batches were all deleted: as in Kafka, the producer has to start over then.
        forgotten = known is not None and not known.batches and sequence != 0
        if forgotten or (producer.open_since < 0 and rng.random() < 0.1):
            epoch, sequence = epoch + 1, 0
        return build_batch(
            self._rows(rng.randint(1, 3)),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=producer.open_since >= 0 or kind == "transactional",
        ), False

    def _fence(self, producer_id: int) -> bytes:
        """Return the marker of a new epoch, as InitProducerId writes it: the producer's earlier state is void."""
        return end_txn_batch(
            committed=False,
            producer_id=producer_id,
            producer_epoch=self.highest_epoch + 1,
            coordinator_epoch=self.highest_epoch + 1,
            timestamp=self.now_ms,
        )

    @staticmethod
    def _placed(batch: bytes, offset: int, epoch: int) -> Stored:
        placed = bytearray(batch)
        patch_offset(placed, 0, offset, len(batch) - LOG_OVERHEAD_BYTES, epoch)
        return Stored(bytes(placed))

    # Appending

    def append(self, partition: Partition) -> None:
        if partition.leads:
            self._lead(partition)
        else:
            self._follow(partition)

    def _lead(self, partition: Partition) -> None:
        model, log = partition.model, partition.log
        assert log is not None
        batch, is_marker = self._next_batch(model, log)
        stored = self._placed(batch, model.end, partition.epoch)
        model.tail = [stored]
        origin = Origin.COORDINATOR if is_marker else Origin.CLIENT
        self._disk_job(log, len(batch))
        appended = append_as(origin, log, batch, partition.epoch, self.now_ms)
        model.settle()
        assert not appended.duplicate
        assert (appended.first_offset, appended.last_offset) == (stored.base, stored.last)
        model.append(stored)

    def _follow(self, partition: Partition) -> None:
        """Append a leader's batches: the last may be incomplete, and compaction leaves gaps."""
        model, log, rng = partition.model, partition.log, self.rng
        assert log is not None
        ahead = PartitionModel(list(model.batches), end=model.end, blurred=model.blurred)
        ahead.producers = type(model.producers)(model.batches)
        for _ in range(rng.randint(1, 5)):
            batch, _ = self._next_batch(ahead)
            if rng.random() < 0.1:
                partition.epoch += 1
            gap = rng.randint(1, 20) if rng.random() < 0.05 else 0
            ahead.append(self._placed(batch, ahead.end + gap, partition.epoch))
        new = ahead.batches[len(model.batches) :]
        sent = b"".join(batch.data for batch in new)
        if rng.random() < 0.3:
            sent += self._placed(self._next_batch(ahead)[0], ahead.end, partition.epoch).data[: rng.randint(1, 60)]
        model.tail = list(new)
        self._disk_job(log, len(sent))
        append_trusted(log, sent, leader_epoch=partition.epoch, now_ms=self.now_ms, origin=Origin.REPLICATION)
        model.settle()
        for batch in new:
            model.append(batch)

    def _disk_job(self, log: Log, size: int) -> None:
        """A worker creates files and syncs directories for most appends; for a coordinator's log the append does it itself."""
        job = log.room.disk_job(size, log.log_end_offset, self.now_ms, self.now_ms)
        if job is not None and self.rng.random() < 0.7:
            job()

    def repeat(self, partition: Partition) -> None:
        """A producer sends one of its last batches again: it is never appended a second time (26)."""
        model, log = partition.model, partition.log
        assert log is not None
        candidates = [p for p in model.producers.by_id.values() if p.sent]
        if not partition.leads or not candidates:
            return
        producer = self.rng.choice(candidates)
        back = self.rng.randint(1, len(producer.sent))
        sent = producer.sent[-back]
        original = next((b for b in model.batches if b.base == sent.first_offset), None)
        if original is None or original.base < max(log.log_start_offset, model.blurred):
            return
        if original.view.count <= original.view.last_offset_delta:
            return  # the cleaner was here before the log was truncated to this point
        end = log.log_end_offset
        try:
            again = self._placed(original.data, 0, -1).data
            appended = log.append(again, leader_epoch=partition.epoch, now_ms=self.now_ms)
        except KafkaError as refusal:
            # Only the last batch of a producer is known after a restart, as in Kafka's snapshot files.
            assert back > 1, f"{original} is the producer's last batch, and was refused: {refusal}"
        else:
            assert appended.duplicate, f"{original} was appended twice"
            assert (appended.first_offset, appended.last_offset) == (original.base, original.last)
        assert log.log_end_offset == end

    def refused(self, partition: Partition) -> None:
        """Check that a refused change changes nothing (13)."""
        model, log, rng = partition.model, partition.log, self.rng
        assert log is not None
        if partition.leads:
            batch = bytearray(build_batch(self._rows(2)))
            batch[rng.randrange(21, len(batch))] ^= 1 << rng.randrange(8)
            with pytest.raises(KafkaError):
                log.append(bytes(batch), leader_epoch=partition.epoch, now_ms=self.now_ms)
            known = [
                (i, p)
                for i, p in model.producers.by_id.items()
                if p.sent and p.open_since < 0 and p.last_offset >= model.blurred
            ]
            if known:
                producer_id, producer = rng.choice(known)
                ahead = build_batch(
                    self._rows(1),
                    producer_id=producer_id,
                    producer_epoch=producer.epoch,
                    base_sequence=(producer.next_sequence + rng.randint(1, 9)) % SEQUENCES,
                )
                if producer_id in log.producers.states:
                    # The batch follows one that the disk refused, and fails for the same reason.
                    with pytest.raises(
                        KafkaError if log.room.append_failure is None else type(log.room.append_failure)
                    ):
                        log.append(ahead, leader_epoch=partition.epoch, now_ms=self.now_ms)
        elif model.end > 0:
            behind = self._placed(build_batch(self._rows(1)), model.end - 1, partition.epoch)
            with pytest.raises(UnexpectedAppendOffset):
                append_trusted(log, behind.data, leader_epoch=0, now_ms=self.now_ms, origin=Origin.REPLICATION)
        assert log.log_end_offset == model.end

    # Changing the log

    def elect(self, partition: Partition) -> None:
        """Begin a new leader epoch, of this replica or of another one."""
        partition.epoch += self.rng.randint(1, 2)
        partition.leads = self.rng.random() < 0.6
        if partition.leads:
            assert partition.log is not None
            partition.log.epochs.begin(partition.epoch, partition.log.log_end_offset)

    def roll(self, partition: Partition) -> None:
        assert partition.log is not None
        partition.log.roll(self.now_ms)

    def flush(self, partition: Partition) -> None:
        log = partition.log
        assert log is not None
        end, truncations = log.log_end_offset, log.durability.truncations
        log.flush(self.now_ms)
        if log.durability.truncations == truncations and not log.closed:
            assert log.recovery_point >= end, "a flush flushes everything"

    def snapshot(self, partition: Partition) -> None:
        assert partition.log is not None
        partition.log.snapshot_producers()

    def advance(self, partition: Partition) -> None:
        """The other replicas have more records: the high watermark moves to the end of a batch."""
        model, log = partition.model, partition.log
        assert log is not None
        ends = [batch.last + 1 for batch in model.batches if batch.last >= model.high_watermark]
        if ends:
            model.high_watermark = self.rng.choice(ends[: 1 + self.rng.randrange(len(ends))])
            log.advance_high_watermark(model.high_watermark)
        assert log.high_watermark == model.high_watermark

    def truncate(self, partition: Partition) -> None:
        """The leader's log diverges from this one; it does so below the high watermark only after an unclean election."""
        model, log, rng = partition.model, partition.log, self.rng
        assert log is not None
        unclean = rng.random() < self.unclean
        lowest = max(model.start, 0 if unclean else model.high_watermark)
        if lowest >= model.end:
            return
        self._truncate(partition, rng.randint(max(lowest, model.end - rng.choice((3, 15, 100))), model.end))

    def _truncate(self, partition: Partition, offset: int) -> None:
        model, log = partition.model, partition.log
        assert log is not None
        if offset < model.decided:
            if not model.start == model.kept_start == model.durable_start:
                return
            # Newer records and markers, for which the cleaner removed older ones, are removed now; the rest stays, as in Kafka.
            check_batches(log, model)
            model.adopt(batches_of(log))
        partition.leads = False
        partition.epoch += 1
        model.end_floor = model.truncated_end(offset)
        truncate_to(log, offset)
        model.settle()
        model.truncate(offset)
        check_batches(log, model)

    def truncate_fully(self, partition: Partition) -> None:
        """The leader's log begins after the end of this one."""
        model, log, rng = partition.model, partition.log, self.rng
        assert log is not None
        partition.leads = False
        partition.epoch += 1
        model.reset_to = model.end + rng.randint(1, 50)
        truncate_fully_and_start_at(log, model.reset_to)
        model.reset(model.reset_to)
        model.settle()

    def delete_records(self, partition: Partition, logs: Logs, durable: bool) -> None:
        model, log, rng = partition.model, partition.log, self.rng
        assert log is not None
        if not partition.leads:
            return
        offset = rng.randint(model.start, model.high_watermark)
        model.start_ceiling = offset
        assert delete_records(log, offset) == offset
        logs.checkpoints.write_log_starts()
        model.settle()
        model.start = offset
        if log.failure is None and durable:
            model.kept_start = model.durable_start = offset

    def compact(self, partition: Partition, logs: Logs, meanwhile: Callable[[], None]) -> None:
        """Run a pass of the cleaner; other operations run between its steps."""
        model, log, rng = partition.model, partition.log, self.rng
        assert log is not None
        if not log.config.compact:
            return
        stable = min(log.segments.active.base_offset, log.last_stable_offset)
        model.cleaned_until = max(model.cleaned_until, stable)
        model.decided = max(model.decided, log.high_watermark, model.opened_end)
        before, truncations = batches_of(log), log.durability.truncations
        cleaner = Cleaner(logs, memory_bytes=rng.choice((0, 2000, 1 << 16)))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cleaner_pass, "PIECE_BYTES", 1500)
            patch.setattr(cleaner_pass, "WRITE_BYTES", rng.choice((500, 1 << 20)))
            with closing(steps_done(cleaner.run(self.now_ms), log.files)) as steps:
                for _ in steps:
                    if rng.random() < 0.3:
                        meanwhile()
                    elif rng.random() < 0.03 and log.failure is None and not log.closed:
                        self._truncate(partition, rng.randint(model.start, model.end))
        assert log.cleaning.uncleanable is None, log.cleaning.uncleanable
        if log.failure is None and not log.closed:
            check_batches(log, model)
            if log.durability.truncations == truncations:
                check_pass(log, model, before, stable, self.now_ms)

    def outgrow(self, partition: Partition, logs: Logs, recreate: Callable[[], None]) -> None:
        """A compacted log restarts below its cleaned part and grows beyond it: all of it must count as dirty."""
        rng = self.rng
        if partition.log is None or not partition.log.config.compact:
            return
        self._grow(partition, rng.randint(10, 40))
        self.compact(partition, logs, lambda: None)
        cleaned = partition.model.cleaned_until
        if rng.random() < 0.5:
            recreate()
        else:
            self._truncate(partition, rng.randint(partition.model.start, partition.model.end))
        for _ in range(3):
            self._grow(partition, rng.randint(10, 30), at_least=cleaned + 1)
            self.compact(partition, logs, lambda: None)
            self.now_ms += 25_000

    def _grow(self, partition: Partition, batches: int, at_least: int = 0) -> None:
        """Appends that are committed and sealed."""
        model, log = partition.model, partition.log
        assert log is not None
        while batches > 0 or (model.end < at_least and log.config.compact):
            self.append(partition)
            batches -= 1
        model.high_watermark = model.end
        log.advance_high_watermark(model.end)
        log.roll(self.now_ms)
