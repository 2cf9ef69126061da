"""Retention of one log: the segments that it no longer keeps leave the log, then their files are renamed.

A prefix of the log is deleted, segment by segment, as long as one of the reasons holds, but nothing at or above the high
watermark (invariant 12). Kafka's rules:

    time   the segment's largest timestamp is older than retention.ms
    size   the log without the segment is still at least retention.bytes
    start  the next segment begins at or before the log start offset

It has three parts, as a flush has (durability.py), because the renames wait for the disk: 300 logs whose records expired together held
the event loop for two seconds.

    begin   on the log's own thread   the segments leave the log, at most `SEGMENTS_AT_ONCE` of them: a job, which does not change
    run     on any thread             the files are unmapped (3.4 ms for 1 GB) and renamed to `.deleted`, producer snapshots are removed
    end     on the log's own thread   `Logs.remove_deleted` unlinks the files once file.delete.delay.ms has passed

A crash in between leaves files below the log start offset, or of segments that the next start applies retention to again. A
truncation finishes the job first (`PartitionDir.retiring`), because its new segment may have the name of one that has left.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from threading import Lock
from typing import NamedTuple

from ottla.protocol.work import DiskJob
from ottla.storage.errors import DiskFull, StorageFailure
from ottla.storage.log.log import Log
from ottla.storage.log.partition_dir import Retiring
from ottla.storage.log_config import LogConfig
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.walk import DamagedLog


class SegmentFacts(NamedTuple):
    base_offset: int
    next_base_offset: int  # of the segment after it; the log end offset for the last
    size: int
    largest_timestamp: int  # the file's modification time if no record has one
    is_active: bool = False


def expired(
    segments: Iterable[SegmentFacts],
    config: LogConfig,
    *,
    total: int,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
) -> Iterator[str]:
    """Yields why it is deleted for each segment to delete now, from the first on, in the words of Kafka's log lines.

    It may be all of them: the caller then creates an empty one. No segment is looked at behind the first that stays. `total` is the
    size of all segments in bytes.
    """
    for segment in segments:
        left = total - segment.size
        if segment.next_base_offset > high_watermark or (segment.is_active and segment.size == 0):
            return
        if config.delete and 0 <= config.retention_ms < now_ms - segment.largest_timestamp:
            yield f"log retention time {config.retention_ms}ms breach"
        elif config.delete and 0 <= config.retention_bytes <= left:
            yield f"log retention size {config.retention_bytes} breach"
        elif not segment.is_active and segment.next_base_offset <= log_start_offset:
            yield f"log start offset {log_start_offset} breach"
        else:
            return
        total = left


logger = logging.getLogger(__name__)

#: The limit of one job. A segment leaves the log in 0.1 ms, and after a change of retention.ms thousands may leave.
SEGMENTS_AT_ONCE = 64


class RetentionJob:
    """The files of segments that have left a log."""

    def __init__(self, log: Log, gone: list[Segment], snapshots: list[str]) -> None:
        self.log = log
        self.segments = len(gone)
        # Taken from their ends: the oldest segment is renamed first, and of each its `.log` file.
        self._mapped = gone[::-1]
        self._names = [name for segment in gone for name in segment.file.names()][::-1]
        self._snapshots = snapshots
        self._renamed: list[str] = []
        self._lock = Lock()
        self._failure: StorageFailure | None = None

    # A failure is kept until `end`, because only the log's own thread takes it offline.

    def run(self) -> None:
        """The system calls. A second call goes on where the first has failed, or waits for it and does nothing."""
        with self._lock:
            self._failure = None
            while self._mapped:
                self._mapped.pop().unmap()
            try:
                while self._names:
                    if (renamed := self.log.partition_dir.rename_deleted(self._names[-1])) is not None:
                        self._renamed.append(renamed)
                    self._names.pop()
                while self._snapshots:
                    self.log.files.remove(self._snapshots[-1])
                    self._snapshots.pop()
            except StorageFailure as failure:
                self._failure = failure

    def end(self) -> None:
        """Counts what was renamed.

        Raises:
            StorageFailure: the log directory goes offline (`DiskFull`: the job is the next one again).
        """
        log = self.log
        if log.partition_dir.retiring is not self:
            return  # a truncation has ended it
        failure = None if log.closed else self._failure  # a deleted log's directory has another name
        if not isinstance(failure, DiskFull):
            log.partition_dir.retired(None)
            for path in self._renamed:
                log.partition_dir.add_deleted(path)
        if failure is not None:
            log.fail(failure)
            raise failure


def finish(log: Log) -> None:
    """Ends the job that is under way, if there is one, on the log's own thread."""
    if log.partition_dir.retiring is not None:
        log.partition_dir.retiring.run()
        log.partition_dir.retiring.end()


def begin_retention(log: Log, now_ms: int, *, disk_job_done: bool = True) -> Retiring | DiskJob | None:
    """Takes the expired segments out of the log. Returns None if there are none, and an earlier job that has not ended again.

    Without `disk_job_done` it returns the sync that it needs first, if it has to roll because even the active segment has expired.

    Raises:
        StorageFailure: the disk failed at the roll that it may take.
    """
    if log.failure is not None or log.closed or not log.partition_dir.exists or log.partition_dir.retiring is not None:
        return log.partition_dir.retiring
    reasons = expired(
        _facts(log),
        log.config,
        total=log.size,
        log_start_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
        now_ms=now_ms,
    )
    whys = list(islice(reasons, SEGMENTS_AT_ONCE))
    count = len(whys)
    if not count:
        return None
    active = log.segments.active
    has_all = count == len(log.segments)
    if has_all and not disk_job_done and active.file.size and not active.file.length_synced:
        return DiskJob(log.partition_dir.log_dir, partial(log.room.run_disk_job, log.room.sync_lengths))
    try:
        if has_all:
            try:
                log.room.roll(log.log_end_offset, now_ms)
            except DiskFull:
                if count == 1:
                    raise
                count -= 1  # the earlier segments make room
        gone = list(log.segments)[:count]
        log.segments.remove(gone)
        log.start_at(max(log.log_start_offset, log.segments[0].base_offset))
    except StorageFailure as failure:
        log.fail(failure)
        raise
    snapshots = log.snapshots.leave(lambda taken: taken < log.segments[0].base_offset)
    for segment, why in zip(gone, whys, strict=False):
        segment.mark_removed()
        logger.info(
            "Deleting segment %d of %s-%d (%d bytes) due to %s",
            segment.base_offset,
            log.topic,
            log.partition,
            segment.file.size,
            why,
        )
    log.producers.remove_expired(now_ms, log.config.producer_id_expiration_ms)
    job = RetentionJob(log, gone, snapshots)
    log.partition_dir.retired(job)
    return job


def apply_retention(log: Log, now_ms: int) -> int:
    """All three parts, on the log's own thread; returns the number of segments that have gone."""
    log.partition_dir.check_usable()
    count = 0
    while isinstance(job := begin_retention(log, now_ms), RetentionJob):
        job.run()
        job.end()
        count += job.segments
        if job.segments < SEGMENTS_AT_ONCE:
            break
    return count


def _facts(log: Log) -> Iterator[SegmentFacts]:
    """Reads the facts of a segment when they are asked for: after a start the largest timestamp is read from a file."""
    for index, segment in enumerate(log.segments):
        following = log.segments.next_base(index)
        try:
            timestamp = segment.indexes.largest_timestamp().timestamp
        except DamagedLog:
            # Size and the file's modification time decide instead: damaged segments must not fill the disk.
            timestamp = -1
        if timestamp < 0 and (segment.file.size or following is None):
            timestamp = log.files.modified_ms(segment.file.log_path)
        # A sealed segment without records was emptied by compaction. Its file is newer than all others and would prevent their removal.
        end = log.log_end_offset if following is None else following
        yield SegmentFacts(segment.base_offset, end, segment.file.size, timestamp, following is None)
