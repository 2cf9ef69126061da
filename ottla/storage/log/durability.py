"""The part of a log that is on the disk: its recovery point, and the part that a power loss could still take back.

It also keeps up to where the log is compacted.

All below the recovery point is flushed. Three things keep it true beside a flush on another thread, and in the checkpoint:

    truncation    lowers the recovery point first, and is counted: a flush that began before it does not advance the point
    gap           a truncation may leave no batch before the log's end; the checkpoint then names the gap's start
    roll          a new segment's entry is synced by the next flush (`rolls`, `rolls_synced`)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from threading import Lock

from ottla.protocol.slotted import mutable
from ottla.storage.epochs import LeaderEpochs
from ottla.storage.errors import StorageFailure
from ottla.storage.log.partition_dir import PartitionDir, sync_topic_id
from ottla.storage.log_config import NEVER
from ottla.storage.producers.producer_snapshots import Frozen, ProducerSnapshots
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.segments import Segments

NO_GAP = (0, 0)


class Durability:
    """The recovery point of one log, and the flushes that advance it. Its methods run on the log's own thread.

    A flush has three parts, because what runs on a worker has no state of the log:

        begin     on the log's own thread   what there is to sync: a job, which does not change
        job.run   on any thread             the system calls
        end       on the log's own thread   the recovery point, unless the log was truncated since the job began

    A truncation runs on the log's own thread, too, so that no job begins in the middle of one. Jobs of one log run one after
    the other.
    """

    def __init__(
        self,
        recovery_point: int,
        partition_dir: PartitionDir,
        segments: Segments,
        epochs: LeaderEpochs,
        snapshots: ProducerSnapshots,
    ) -> None:
        self.recovery_point = recovery_point
        self.partition_dir, self.segments = partition_dir, segments
        self.epochs, self.snapshots = epochs, snapshots
        self.flushed_ms = 0
        self.flush_mark = (-1, 0)  # base offset and size of the active segment when it was last flushed
        self.flush_lock = Lock()  # held while a flush makes its system calls
        self.truncations = 0  # a flush that began before one does not advance the recovery point
        self.entry_synced = False  # True once the entry of the log's directory is synced
        self.rolls = self.rolls_synced = 0  # the newest segment's entry is synced if both are equal
        self.end_gap = NO_GAP  # a truncation left no batch in these offsets, and the log continues after them
        # During a truncation: the log end offset and log start offset after it. Checkpoints written meanwhile must not exceed them.
        self.truncating_to = NEVER
        self.truncating_start: int | None = None
        self.before_truncation: Callable[[int, int | None], None] | None = None

    # Flushes

    def begin_flush(self, end_offset: int, *, names: bool = False, entry: bool = True) -> FlushJob | None:
        """Return the flush of all below the log end offset, None if there is nothing that could be synced."""
        if self.partition_dir.closed:
            return None  # deleted while the flush waited
        self.partition_dir.check_usable()
        if not self.partition_dir.exists:
            return None
        active, recovery_point = self.segments.active, self.recovery_point
        # The segment before the recovery point is included: it was trimmed when it was sealed, after its last flush.
        segments = self.segments.from_offset(max(recovery_point - 1, 0)) if end_offset > recovery_point else ()
        return FlushJob(
            self,
            end_offset,
            self.truncations,
            self.rolls,
            tuple(segments),
            (active.base_offset, active.file.size),
            self.snapshots.begin_writing(),
            names or self.rolls != self.rolls_synced,
            entry,
        )

    def end_flush(self, job: FlushJob, now_ms: int) -> bool:
        """Return whether the log has been synced up to the end that it had when the job began.

        Raises:
            StorageFailure: the caller takes the log offline.
        """
        closed = self.partition_dir.closed
        self.snapshots.end_writing(job.frozen, job.written, is_current=job.is_current(), is_closed=closed)
        if job.failure is not None and not closed:
            raise job.failure
        if not (job.synced and job.is_current()):
            return False
        self.rolls_synced = job.rolls
        if job.segments:
            self.entry_synced |= job.entry
            self.recovery_point = max(self.recovery_point, job.end)
            self.flush_mark, self.flushed_ms = job.mark, now_ms
        return True

    @property
    def unflushed_bytes(self) -> int:
        """The number of bytes that recovery must check after a crash."""
        base, flushed = self.flush_mark  # the last flush has synced this much of that segment
        segments = self.segments.from_offset(self.recovery_point)
        return max(sum(each.file.size - (flushed if each.base_offset == base else 0) for each in segments), 0)

    def entry_is_synced(self) -> None:
        self.entry_synced = True

    def rolled(self) -> None:
        self.rolls += 1

    def take_over(self, replaced: Durability) -> None:
        """Take the place of another log. Until the new name is on the disk a power loss brings that log back: only offsets that
        are flushed in both count.
        """
        self.recovery_point = min(self.recovery_point, replaced.recovery_point)
        self.flush_mark, self.flushed_ms = (-1, 0), replaced.flushed_ms

    # The end, and another name

    def save(self, end_offset: int, *, entry: bool) -> None:
        """Trim the active segment, write a producer snapshot and flush, on the log's own thread or a worker that has the log.

        Raises:
            StorageFailure: the caller takes the log offline.
        """
        self.snapshots.frozen.clear()
        self.snapshots.take(end_offset, self.segments.bases, self.recovery_point, at_once=True)
        names = self.snapshots.sync(end_offset)
        self.segments.active.close(trim=True)
        job = self.begin_flush(end_offset, names=names, entry=entry)
        if job is not None:
            job.run()
            self.end_flush(job, 0)
        for segment in self.segments.from_offset(max(self.recovery_point - 1, 0)):
            if segment.trimmed:  # it lies below the recovery point, so the flush skipped it
                segment.flush()

    def close(self, clean: bool) -> None:
        """Close the files. Without `clean` no flush writes them any more."""
        self.partition_dir.close()
        for segment in self.segments:
            if not clean:
                segment.mark_removed()
            segment.unmap()

    def leave(self) -> None:
        """Stop all writes, also of a running flush, because the log is deleted or set aside.

        A search that still reads it must not take the directory offline, because the files are renamed.
        """
        self.partition_dir.close()
        self.partition_dir.call_on_failure(None)
        for segment in self.segments:
            segment.mark_removed()

    def unmap(self) -> None:
        """Unmap the segments, on any thread. Only a running flush may still use the log."""
        self.epochs.leave()
        for segment in self.segments:
            segment.unmap()

    def relocate(self, directory: str) -> None:
        """Rename the log's directory, without a sync of its entry: the next flush syncs it before the recovery point advances.

        Raises:
            StorageFailure: nothing has changed.
        """
        for segment in self.segments:
            segment.unmap()
        self.partition_dir.rename(directory)
        self.snapshots.relocate(directory)
        self.epochs.relocate(directory)
        for segment in self.segments:
            segment.relocate(directory)
        self.entry_synced = False

    # Truncation

    def call_before_truncation(self, before_truncation: Callable[[int, int | None], None]) -> None:
        """Set the function that is called with the new log end, and the new log start if there is one, to lower the checkpoints."""
        self.before_truncation = before_truncation

    def begin_truncation(self, offset: int, start: int, new_start: int | None) -> None:
        """Begin a truncation: from now on no checkpoint exceeds the log's end and start after it.

        The checkpoints are lowered first, because recovery trusts all below the recovery point in the file.
        """
        self.truncating_to, self.truncating_start = offset, start
        if self.before_truncation is not None:
            self.before_truncation(offset, new_start)
        self.truncations += 1
        self.recovery_point = min(self.recovery_point, offset)

    def end_truncation(self) -> None:
        self.truncating_to, self.truncating_start = NEVER, None

    def restored_at(self, offset: int) -> None:
        """The log begins at `offset`, and all before that is in remote storage."""
        self.recovery_point = offset

    # The offsets in checkpoints

    def recovery_point_to_write(self, end_offset: int) -> int:
        """Return the recovery point for the checkpoint: a restart that finds no batches up to there treats the log as damaged."""
        return self._before_gap(min(self.recovery_point, self.truncating_to, end_offset))

    def log_start_to_write(self, start_offset: int) -> int:
        return start_offset if self.truncating_start is None else self.truncating_start

    def high_watermark_to_write(self, high_watermark: int) -> int:
        # `min` of the two takes twice as long.
        return high_watermark if self.truncating_to == NEVER else min(high_watermark, self.truncating_to)

    # The gap

    def leave_gap(self) -> tuple[int, int]:
        """Move a recovery point inside the gap at the log's end to the gap's start, before the gap is forgotten; return the gap.

        A power loss may take the batches that were appended after the gap. Recovery would then find the log to end below its
        recovery point, and treat it as damaged.
        """
        gap_from, gap_to = self.end_gap
        if gap_from < gap_to:
            self.truncations += 1  # a flush that has begun must not advance the recovery point
            self.recovery_point = self._before_gap(self.recovery_point)
        return self.end_gap

    def set_gap(self, gap: tuple[int, int]) -> None:
        """Note a gap: the log's end is the end of it."""
        self.end_gap = gap

    def _before_gap(self, offset: int) -> int:
        gap_from, gap_to = self.end_gap
        return gap_from if gap_from < offset <= gap_to else offset


@mutable
class FlushJob:
    """One flush. What `run` has found out is in the fields after `entry`."""

    durability: Durability
    #: The recovery point after the flush, and the counts when the job began.
    end: int
    truncations: int
    rolls: int
    #: The segments with something to sync; empty if all batches are synced.
    segments: tuple[Segment, ...]
    #: Base offset and size of the active segment.
    mark: tuple[int, int]
    #: Producer states to be written as snapshots, by offset.
    frozen: Frozen
    #: The log's directory must be synced; the directory above as well (otherwise one sync of it serves all logs).
    names: bool
    entry: bool
    written: list[int] = field(default_factory=list)
    synced: bool = False
    failure: StorageFailure | None = None

    def is_current(self) -> bool:
        """Return whether the part that was to be synced is still in the log."""
        return self.truncations == self.durability.truncations and not self.durability.partition_dir.closed

    def run(self) -> None:
        """The system calls. A failure is kept for `end`: only the log's own thread takes it offline."""
        durability = self.durability
        with durability.flush_lock:
            if not self.is_current():
                return
            try:
                durability.snapshots.write_frozen(self.frozen, self.written, self.is_current)
                self._sync()
                self.synced = True
            except (StorageFailure, FileNotFoundError) as error:
                if not durability.partition_dir.closed:  # deleted meanwhile
                    self.failure = (
                        error
                        if isinstance(error, StorageFailure)
                        else StorageFailure(durability.partition_dir.path, error)
                    )

    def _sync(self) -> None:
        durability, place = self.durability, self.durability.partition_dir
        names = durability.epochs.flush() or self.names
        if self.segments:
            names |= not durability.entry_synced
            for segment in self.segments:
                names |= self._flush_segment(segment)
        if names:
            place.files.sync_dir(place.path)
        if self.segments and not durability.entry_synced:
            # Creating does not wait for the disk (a topic of 1,000 partitions would take a second); flushing does.
            sync_topic_id(place.files, place.path)
            if self.entry:
                place.files.sync_dir(place.log_dir)

    def _flush_segment(self, segment: Segment) -> bool:
        try:
            return segment.flush()
        except (StorageFailure, FileNotFoundError) as error:
            if segment.removed or self.durability.partition_dir.closed:
                return False  # deleted or truncated away meanwhile
            if isinstance(error, StorageFailure):
                raise
            raise StorageFailure(segment.file.log_path, error) from error


class Cleaning:
    """The log cleaner's state of a log: up to where it is clean, and why it is skipped (storage/cleaner).

    The log has it, because it moves and is truncated with the log.
    """

    def __init__(self) -> None:
        self.cleaned_until = 0  # all below is clean (cleaner-offset-checkpoint)
        self.uncleanable: str | None = None  # why the log cleaner skips it
        # True while a future log copies this one. It is not compacted then: the copy could keep a record whose tombstone is gone.
        self.is_moving = False

    def cleaned(self, until: int) -> None:
        """Note that all below `until` is clean: a pass has ended, or the checkpoint says so at the start."""
        self.cleaned_until = until

    def truncated(self, offset: int) -> None:
        """Lower the clean offset: records that are appended in the place of truncated ones were never cleaned."""
        self.cleaned_until = min(self.cleaned_until, offset)

    def skip(self, reason: str) -> None:
        self.uncleanable = reason

    def move(self, is_moving: bool) -> None:
        self.is_moving = is_moving

    def take_over(self, replaced: Cleaning) -> None:
        """Take the place of another log with the same records."""
        self.cleaned_until, self.uncleanable = replaced.cleaned_until, replaced.uncleanable
        self.is_moving = False
