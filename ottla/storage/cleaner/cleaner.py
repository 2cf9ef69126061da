"""The log cleaner (`cleanup.policy=compact`): it chooses the next log to clean, and swaps its segments for those that a pass has written.

Of every key below the cleaned end only the last record stays; offsets and order never change. A pass reads the dirty part into a map
from key to its last record, then filters every segment from the start of the log by that map (cleaner_pass.py).

`Cleaner.run` is a generator that yields requests for work. A driver carries them out (`broker/log_cleaner.py` in a process of
its own, tests at once) and sends the results back. Between two steps appends and reads continue. The rules:

- Only sealed segments below the last stable offset take part, and none is changed. New ones are written as `.cleaned` and
  synced; in one turn of the log's own thread they become `.swap`, the old ones go, and they take their names. A crash at any
  point leaves the old segments, the new ones, or a swap that recovery finishes: directories are journaled in order.
- The log is flushed first. Otherwise a power loss could take the newer record of a key (or a transaction's marker) from an
  unflushed segment, after the cleaner has removed the older, flushed record because of it.
- The directory is synced before the next segment is swapped: a tombstone must not be gone before the records that it deletes.
- A truncation ends the pass, because its map may name truncated records. It also lowers `log.cleaning.cleaned_until`, because records
  that are appended in their place were never cleaned. Segments that retention removes during a pass need no cleaning.
- A log that cannot be cleaned is skipped until the node is restarted; other logs are cleaned.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable
from functools import partial
from typing import NamedTuple, TypeAlias

from ottla.protocol.slotted import frozen
from ottla.protocol.work import DiskJob
from ottla.storage.cleaner.cleaner_pass import Job, PassProgress, SourceSegment
from ottla.storage.directories.logs import Logs
from ottla.storage.errors import DiskFull, StorageFailure
from ottla.storage.log.log import Log
from ottla.storage.log.retention import waits_for_table
from ottla.storage.log_config import NEVER, LogConfig
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.segment_file import CLEANED_SUFFIX, SWAP_SUFFIX, SegmentFile

logger = logging.getLogger(__name__)

#: log.cleaner.dedupe.buffer.size, for 5 million keys a pass.
MEMORY_BYTES = 128 << 20
#: The number of segments that are checked in one turn of the event loop: each may have to be read for its first timestamp.
SEGMENTS_PER_TURN = 100
#: The number of processes in a row that may end before their pass is done. After that the log itself may be the cause: it needs
#: too much memory.
PASSES_ENDED_MAX = 5


class LogChanged(Exception):
    """The log was truncated, deleted or closed during a pass; the segments that the pass wrote are dropped."""


class PassEnded(Exception):
    """The process of the pass was killed, or could not be started. That says nothing about the log."""


class Begin(NamedTuple):
    """Requests a `CleaningPass` over this job."""

    job: Job


class Advance(NamedTuple):
    """Requests the pass's next piece of work: its `PassProgress` is sent back."""

    first_base: int


# A disk job waits for the disk, on any thread; None ends the turn of the event loop.
Step: TypeAlias = Begin | Advance | DiskJob | None
Steps: TypeAlias = Generator[Step, PassProgress | None, bool]


class Cleaner:
    """Chooses the dirtiest log and cleans it. Below `Cleaning.cleaned_until`, which `Logs` writes to the checkpoint, a log is clean."""

    def __init__(self, logs: Logs, memory_bytes: int = MEMORY_BYTES, load_factor: float = 0.9) -> None:
        self._logs = logs
        self.memory_bytes = memory_bytes
        self.load_factor = load_factor
        self._passes_ended = 0  # passes in a row whose process has ended early

    def run(self, now_ms: int) -> Steps:
        """Run one pass over the log with the greatest dirty ratio. Return False if no log is due."""
        due = yield from self._next_due(now_ms)
        if due is None:
            return False
        log, plan = due
        size_before = _sealed_bytes(log, plan.end)
        try:
            clean_until = yield from clean(log, plan, now_ms, self.memory_bytes, self.load_factor)
        except LogChanged as change:
            logger.info("%s: %s", log, change)
            return True
        except DiskFull as failure:
            logger.warning("compaction of %s waits for room: %s", log, failure)
            return False
        except StorageFailure as failure:
            log.fail(failure)
            return True
        except PassEnded as ended:
            self._passes_ended += 1
            if self._passes_ended < PASSES_ENDED_MAX:
                logger.warning("compaction of %s waits for another process: %s", log, ended)
                return False
            self._passes_ended = 0
            _pass_over(log, ended)
            return True
        except Exception as error:
            _pass_over(log, error)
            return True
        self._passes_ended = 0
        log.cleaning.cleaned(clean_until)
        size = _sealed_bytes(log, plan.end)
        logger.info(
            "Log cleaner cleaned log %s-%d (dirty section = [%d, %d)): from %d to %d bytes, %.1f%% size reduction",
            log.topic,
            log.partition,
            plan.first_dirty,
            clean_until,
            size_before,
            size,
            100 * (1 - size / max(1, size_before)),
        )
        yield DiskJob(
            log.partition_dir.log_dir, partial(self._logs.checkpoints.write_cleaned, self._logs.open.directory_of(log))
        )
        return True

    def _next_due(self, now_ms: int) -> Generator[Step, PassProgress | None, tuple[Log, CleaningPlan] | None]:
        """Yield the log with the greatest dirty ratio among those that are due."""
        best: tuple[Log, CleaningPlan] | None = None
        looked_at = 0
        for log in self._logs.open:
            if not log.config.compact or len(log.segments) < 2 or log.failure or log.cleaning.uncleanable:
                continue
            if log.closed or log.cleaning.is_moving:
                continue
            try:
                plan = plan_for(log, log.cleaning.cleaned_until, now_ms)
            except Exception as error:
                _pass_over(log, error)
                continue
            if plan.due(log.config) and (best is None or plan.dirty_ratio > best[1].dirty_ratio):
                best = (log, plan)
            looked_at += len(log.segments)
            if looked_at >= SEGMENTS_PER_TURN:
                looked_at = 0
                yield None
        if best is None or best[0].closed or best[0].cleaning.is_moving:
            return None
        return best[0], plan_for(best[0], best[0].cleaning.cleaned_until, now_ms)  # the plan is of this turn


def _sealed_bytes(log: Log, end: int) -> int:
    return sum(segment.file.size for segment in log.segments if segment.base_offset < end)


def _pass_over(log: Log, error: Exception) -> None:
    """Skip the log from now on: a retry would most likely fail again, and delay the other logs."""
    log.cleaning.skip(f"{type(error).__name__}: {error}")
    logger.error("%s cannot be compacted until the node is started again", log, exc_info=error)


@frozen
class CleaningPlan:
    """The plan of a pass over the segments below `end`. Those from `first_dirty` on were never cleaned."""

    first_dirty: int
    end: int  # base offset of the first segment that stays as it is
    clean_bytes: int
    dirty_bytes: int
    overdue: bool  # max.compaction.lag.ms has passed

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def due(self, config: LogConfig) -> bool:
        return self.dirty_bytes > 0 and (self.overdue or self.dirty_ratio > config.min_cleanable_dirty_ratio)


def plan_for(log: Log, first_dirty: int, now_ms: int) -> CleaningPlan:
    """Return the plan of a pass that is possible now. The active segment is never cleaned."""
    config = log.config
    if not log.log_start_offset <= first_dirty <= log.log_end_offset:
        first_dirty = log.log_start_offset
    *sealed, active = log.segments
    ends = log.segments.bases[1:]
    dirty = [segment for segment, following in zip(sealed, ends, strict=True) if following > first_dirty]
    end = active.base_offset
    if config.min_compaction_lag_ms > 0:
        newest = now_ms - config.min_compaction_lag_ms
        end = min([end, *(each.base_offset for each in dirty if each.indexes.largest_timestamp().timestamp > newest)])
    # Only complete segments are cleaned: the one that contains the last stable offset is not.
    stable = log.last_stable_offset
    end = min([end, *(each.base_offset for each, following in zip(sealed, ends, strict=True) if following > stable)])
    # Compaction waits for the table, which has to get every record.
    waiting = (
        each.base_offset
        for each, following in zip(sealed, ends, strict=True)
        if following > first_dirty and waits_for_table(log, each, following, 0, now_ms)
    )
    end = min([end, *waiting])
    dirty = [segment for segment in dirty if segment.base_offset < end]
    dirty_bytes = sum(segment.file.size for segment in dirty)
    return CleaningPlan(
        first_dirty=first_dirty,
        end=end,
        clean_bytes=_sealed_bytes(log, end) - dirty_bytes,
        dirty_bytes=dirty_bytes,
        overdue=config.max_compaction_lag_ms < NEVER
        and any(0 < segment.first_timestamp() < now_ms - config.max_compaction_lag_ms for segment in dirty),
    )


def clean(
    log: Log, plan: CleaningPlan, now_ms: int, memory_bytes: int = MEMORY_BYTES, load_factor: float = 0.9
) -> Generator[Step, PassProgress | None, int]:
    """Run one pass; return the offset up to which the log is clean afterwards.

    Raises:
        LogChanged: the log has changed since the plan was made.
    """
    segments = {segment.base_offset: segment for segment in log.segments if segment.base_offset < plan.end}
    if not segments:
        return plan.end
    job = Job(
        directory=log.directory,
        sources=tuple(SourceSegment(segment.base_offset, segment.file.size) for segment in segments.values()),
        config=log.config,
        first_dirty=plan.first_dirty,
        end=plan.end,
        now_ms=now_ms,
        memory_bytes=memory_bytes,
        load_factor=load_factor,
        aborted=tuple(log.segments.aborted_transactions(next(iter(segments)), plan.end)),
        last_of_producers={each.producer_id: (each.last_offset, each.epoch) for each in log.producers},
    )
    truncations, decided = log.durability.truncations, log.high_watermark
    try:
        yield from _flushed(log, decided, now_ms)
        _check_unchanged(log, truncations, ())
        yield Begin(job)
        while True:
            try:
                progress = yield Advance(log.segments[0].base_offset)
            except Exception:
                # The likeliest reason is that a source segment has been removed.
                _check_unchanged(log, truncations, segments.values())
                raise
            _check_unchanged(log, truncations, ())
            assert progress is not None
            if progress.clean_until is not None:
                return progress.clean_until
            if progress.written and _put_in_place(
                log, [segments.pop(base) for base in progress.written], progress.size
            ):
                yield DiskJob(log.partition_dir.log_dir, partial(log.files.sync_dir, log.directory))
    except BaseException:  # also when the driver gives up: GeneratorExit
        _remove_unfinished(log)
        raise


def _flushed(log: Log, offset: int, now_ms: int) -> Generator[Step, PassProgress | None, None]:
    if log.recovery_point < offset:
        job = log.begin_flush()
        if job is not None:
            yield DiskJob(log.partition_dir.log_dir, job.run)
            log.end_flush(job, now_ms)
        if log.recovery_point < offset:
            raise LogChanged("truncated or closed during the flush before compaction")


def _check_unchanged(log: Log, truncations: int, segments: Iterable[Segment]) -> None:
    if log.closed:
        raise LogChanged("closed during compaction")
    if log.cleaning.is_moving:
        raise LogChanged("compaction pauses while the log moves to another directory")
    if log.durability.truncations != truncations:
        raise LogChanged("truncated during compaction")
    if not log.config.compact:
        raise LogChanged("no longer compacted")
    if any(segment.removed for segment in segments):
        raise LogChanged("a segment was removed during compaction")


def _remove_unfinished(log: Log) -> None:
    try:
        for name in log.files.list_dir(log.directory):
            if name.endswith(CLEANED_SUFFIX):
                log.files.remove(f"{log.directory}/{name}")
    except (StorageFailure, FileNotFoundError) as error:
        logger.warning("%s: the next start removes what compaction left: %s", log, error)


def _put_in_place(log: Log, old: list[Segment], size: int) -> bool:
    """Swap a group of segments for the rewritten one. Return False if retention has removed the group."""
    if log.failure is not None:
        raise LogChanged("its directory failed")
    if any(segment.removed for segment in old):
        if all(segment.removed for segment in old):
            _remove_unfinished(log)
            return False
        raise LogChanged("a segment was removed during compaction")
    cleaned = SegmentFile(
        log.files,
        log.mappings,
        log.directory,
        old[0].base_offset,
        log.config,
        size=size,
        active=False,
        suffix=CLEANED_SUFFIX,
    )
    try:
        _swap(log, old, Segment(cleaned))
    except StorageFailure as failure:
        log.fail(failure.for_good())
        raise
    return True


def _swap(log: Log, old: list[Segment], cleaned: Segment) -> None:
    """Swap atomically for readers, which run on this thread. The order of the renames lets recovery finish the swap after a crash."""
    following = min(segment.base_offset for segment in log.segments if segment.base_offset > old[-1].base_offset)
    # With a producer snapshot from before a removed marker, recovery would leave the transaction open for ever.
    log.snapshots.forget(lambda offset: offset < following)
    cleaned.change_suffix(SWAP_SUFFIX)
    ids = {id(segment) for segment in old}
    remaining = [segment for segment in log.segments if id(segment) not in ids]
    at = sum(segment.base_offset < cleaned.base_offset for segment in remaining)
    log.partition_dir.delete(old)
    cleaned.change_suffix("")
    log.segments.replace([*remaining[:at], cleaned, *remaining[at:]])
