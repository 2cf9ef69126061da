"""Flush of a log, which advances the recovery point, and close of a log.

A flush has three parts, because what runs on a worker has no state of the log:

    begin   on the log's own thread   what there is to sync: a job, which does not change
    run     on any thread             the system calls
    end     on the log's own thread   the recovery point, unless the log was truncated since the job began

A truncation runs on the log's own thread, too, so that no job begins in the middle of one. Jobs of one log run one after the other.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from ottla.storage.errors import StorageFailure
from ottla.storage.log.log_state import LogState
from ottla.storage.log.partition_dir import sync_topic_id
from ottla.storage.producers.producer_snapshots import Frozen
from ottla.storage.segment.segment import Segment

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class FlushJob:
    """One flush. What `run` has found out is in the fields after `entry`."""

    log: LogState
    #: What the recovery point becomes, and what counted when the job began.
    end: int
    truncations: int
    rolls: int
    #: Those with something to sync; empty if all batches are.
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
        """Whether what was to be synced is still in the log."""
        return self.truncations == self.log.durability.truncations and not self.log.closed

    def run(self) -> None:
        """The system calls. A failure is kept for `end`: only the log's own thread takes it offline."""
        log = self.log
        with log.durability.flush_lock:
            if not self.is_current():
                return
            try:
                log.snapshots.write_frozen(self.frozen, self.written, self.is_current)
                self._sync()
                self.synced = True
            except (StorageFailure, FileNotFoundError) as error:
                if not log.closed:  # deleted meanwhile
                    self.failure = error if isinstance(error, StorageFailure) else StorageFailure(log.directory, error)

    def _sync(self) -> None:
        log = self.log
        names = log.epochs.flush() or self.names
        if self.segments:
            names |= not log.durability.entry_synced
            for segment in self.segments:
                names |= _flush_segment(log, segment)
        if names:
            log.files.sync_dir(log.directory)
        if self.segments and not log.durability.entry_synced:
            # Creating does not wait for the disk (a topic of 1,000 partitions would take a second); flushing does.
            sync_topic_id(log.files, log.directory)
            if self.entry:
                log.files.sync_dir(log.log_dir)


def begin(log: LogState, *, names: bool = False, entry: bool = True) -> FlushJob | None:
    """Returns None if there is nothing that could be synced."""
    if log.closed:
        return None  # deleted while the flush waited
    log.check_usable()
    if not log.partition_dir.exists:
        return None
    end, active = log.log_end_offset, log.segments.active
    # The segment before the recovery point is included: it was trimmed when it was sealed, after its last flush.
    segments = log.segments.from_offset(max(log.recovery_point - 1, 0)) if end > log.recovery_point else ()
    return FlushJob(
        log,
        end,
        log.durability.truncations,
        log.durability.rolls,
        tuple(segments),
        (active.base_offset, active.file.size),
        log.snapshots.begin_writing(),
        names or log.durability.rolls != log.durability.rolls_synced,
        entry,
    )


def end(job: FlushJob, now_ms: int) -> bool:
    """Returns whether the log has been synced up to the end that it had when the job began.

    Raises:
        StorageFailure: the log directory goes offline.
    """
    log = job.log
    log.snapshots.end_writing(job.frozen, job.written, is_current=job.is_current(), is_closed=log.closed)
    if job.failure is not None and not log.closed:
        log.fail(job.failure)
        raise job.failure
    if not (job.synced and job.is_current()):
        return False
    assert job.end <= log.log_end_offset, "only a truncation lowers the end"
    log.durability.rolls_are_synced(job.rolls)
    if job.segments:
        if job.entry:
            log.durability.entry_is_synced()
        log.durability.flushed(job.end, job.mark, now_ms)
    return True


def flush(log: LogState, now_ms: int, *, names: bool = False, entry: bool = True) -> None:
    """All three parts, on the log's own thread."""
    job = begin(log, names=names, entry=entry)
    if job is not None:
        job.run()
        end(job, now_ms)


def _flush_segment(log: LogState, segment: Segment) -> bool:
    try:
        return segment.flush()
    except (StorageFailure, FileNotFoundError) as error:
        if segment.removed or log.closed:
            return False  # deleted or truncated away meanwhile
        raise error if isinstance(error, StorageFailure) else StorageFailure(segment.file.log_path, error) from error


def close(log: LogState, clean: bool, entry: bool) -> bool:
    """Returns False if not everything was synced: the next start must then recover the log."""
    if log.closed:
        return False
    saved = not log.partition_dir.exists
    if log.failure is None and clean and log.partition_dir.exists:
        try:
            log.snapshots.frozen.clear()
            log.take_snapshot(at_once=True)
            names = log.snapshots.sync(log.log_end_offset)
            log.segments.active.close(trim=True)
            flush(log, 0, names=names, entry=entry)
            for segment in log.segments.from_offset(max(log.recovery_point - 1, 0)):
                if segment.trimmed:  # it lies below the recovery point, so the flush skipped it
                    segment.flush()
            saved = True
        except StorageFailure as failure:
            log.fail(failure)
            logger.warning("%s is not closed cleanly: %s", log, failure)
    log.stop()
    for segment in log.segments:
        if not clean:
            segment.mark_removed()
        segment.unmap()
    return saved
