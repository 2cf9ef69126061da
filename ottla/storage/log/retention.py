"""Retention of one log: the segments that it no longer keeps leave the log, then their files are renamed.

A prefix of the log is deleted, segment by segment, as long as one of the reasons holds, but nothing at or above the high
watermark (invariant 12). Kafka's rules:

    time   the segment's largest timestamp is older than retention.ms
    size   the log without the segment is still at least retention.bytes
    start  the next segment begins at or before the log start offset

With remote storage (KIP-405) time and size are local.retention.ms and local.retention.bytes, and a segment stays until remote storage has it
(`Log.remote_end`) and the log is flushed up to its end: the file of leader epochs then has what could not be read from batches
again. So has the producer snapshot at the new local start offset, which is synced first. The log start offset stays.

Retention and compaction leave what the topic's table does not have yet (`ottla.table.retention.hold`). A leader knows from the process beside
it how far the table is (`Log.table_offset`). A follower does not, and leaves everything above its log start offset, which follows the
leader's. Both wait for ottla.table.hold.ms.max at most: a table whose store is gone must not fill the disk.

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
from collections.abc import Iterator
from functools import partial
from itertools import islice

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.work import DiskJob
from ottla.storage.errors import DiskFull, StorageFailure
from ottla.storage.log.log import Log
from ottla.storage.log.partition_dir import RetentionJob
from ottla.storage.log_config import NEVER
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.walk import DamagedLog

logger = logging.getLogger(__name__)

#: The limit of one job. A segment leaves the log in 0.1 ms, and after a change of retention.ms thousands may leave.
SEGMENTS_AT_ONCE = 64


def finish(log: Log) -> None:
    """End the job that is under way, if there is one, on the log's own thread."""
    if log.partition_dir.retiring is not None:
        log.partition_dir.retiring.run()
        log.partition_dir.retiring.end()


def begin_retention(log: Log, now_ms: int, *, disk_job_done: bool = True) -> RetentionJob | DiskJob | None:
    """Take the expired segments out of the log. Return None if there are none, or the earlier job if it has not ended.

    Without `disk_job_done` it returns the sync that it needs first, if it has to roll because even the active segment has expired.

    Raises:
        StorageFailure: the disk failed at the roll that it may take.
    """
    if log.failure is not None or log.closed or not log.partition_dir.exists or log.partition_dir.retiring is not None:
        return log.partition_dir.retiring
    whys = list(islice(expired(log, now_ms), SEGMENTS_AT_ONCE))
    count = len(whys)
    if not count:
        return None
    active, start = log.segments.active, log.log_start_offset
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
        while count and log.config.is_copied and log.segments[count].base_offset not in log.snapshots.offsets:
            count -= 1  # the snapshot is missing: a full disk has prevented it, or the next flush writes it
        if not count:
            return None
        gone = list(log.segments)[:count]
        starts = [each.base_offset for each in list(log.segments)[1 : count + 1]] if log.config.is_copied else []
        synced_first = log.snapshots.paths_at(starts)
        log.segments.remove(gone)
        if log.config.is_copied:
            log.local_start_at(log.segments[0].base_offset)
        else:
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
    _report_gap(log, start)
    log.producers.remove_expired(now_ms, log.config.producer_id_expiration_ms)
    return RetentionJob(log.partition_dir, gone, snapshots, log.fail, synced_first)


def _report_gap(log: Log, start: int) -> None:
    """Log an error if retention has removed, from `start` on, records that the topic's table does not have yet."""
    config, table = log.config, log.table_offset or 0
    if not config.holds_for_table:
        return
    lost = log.log_start_offset - max(start, table)
    if lost > 0:
        logger.error(
            "Deleted %d records of %s-%d from offset %d on: ottla.table.hold.ms.max (%d ms) is over,"
            " and the topic's table has not reported that it has them",
            lost,
            log.topic,
            log.partition,
            max(start, table),
            config.ottla_table_hold_ms_max,
        )


def apply_retention(log: Log, now_ms: int) -> int:
    """Carry out all three parts on the log's own thread; return the number of segments that have gone."""
    log.partition_dir.check_usable()
    count = 0
    while isinstance(job := begin_retention(log, now_ms), RetentionJob):
        job.run()
        job.end()
        count += job.segments
        if job.segments < SEGMENTS_AT_ONCE:
            break
    return count


def advance_log_start_offset(log: Log, offset: int) -> bool:
    """Apply the leader's log start offset on a follower. The next retention run removes the segments before it."""
    if offset <= log.log_start_offset:
        return False
    if offset > log.high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"the log cannot start at {offset}, above its high watermark {log.high_watermark}",
        )
    log.start_at(offset)
    logger.info("Incremented log start offset to %d in %s-%d", offset, log.topic, log.partition)
    return True


def delete_records(log: Log, before_offset: int) -> int:
    """DeleteRecords: the log starts at `before_offset` (-1: the high watermark). Return the log start offset.

    Raises:
        KafkaError: OFFSET_OUT_OF_RANGE when it is above the high watermark.
    """
    log.partition_dir.check_usable()
    offset = log.high_watermark if before_offset == -1 else before_offset
    if offset < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"cannot delete records before offset {offset}")
    advance_log_start_offset(log, offset)
    return log.log_start_offset


def expired(log: Log, now_ms: int) -> Iterator[str]:
    """Yield for each segment that is to be deleted now, from the first on, the reason in the words of Kafka's log lines.

    It may be all of them: the caller then creates an empty one. Segments after the first one that stays are not looked at.
    """
    config, left = log.config, log.segments.size
    kept = "local log retention" if config.is_copied else "log retention"
    for index, segment in enumerate(log.segments):
        following = log.segments.next_base(index)
        is_active, size = following is None, segment.file.size
        end = log.log_end_offset if following is None else following
        left -= size
        if end > log.high_watermark or (is_active and not size):
            return
        goes_ms, is_held = NEVER, config.is_copied and end > min(log.remote_end + 1, log.recovery_point)
        if config.expires and config.kept_ms >= 0 and not is_held:
            goes_ms = _largest_timestamp(log, segment, is_active) + config.kept_ms
        if goes_ms < now_ms:
            why = f"{kept} time {config.kept_ms}ms breach"
        elif config.expires and 0 <= config.kept_bytes <= left and not is_held:
            why, goes_ms = f"{kept} size {config.kept_bytes} breach", 0
        elif following is not None and following <= log.log_start_offset:
            yield f"log start offset {log.log_start_offset} breach"
            continue
        else:
            return
        if waits_for_table(log, segment, end, goes_ms, now_ms):
            return
        yield why


def waits_for_table(log: Log, segment: Segment, end: int, since_ms: int, now_ms: int) -> bool:
    """Return whether the segment, whose records are below `end`, is to stay for the table's sake.

    The time that it waits begins at `since_ms`, when it would otherwise go, and not before its file was last written: records may have
    old timestamps.
    """
    if not is_held_for_table(log, end):
        return False
    since_ms = max(since_ms, log.files.modified_ms(segment.file.log_path))
    return now_ms - since_ms < log.config.ottla_table_hold_ms_max


def is_held_for_table(log: Log, end: int) -> bool:
    """Return whether the topic's table may not have all records below `end` yet, and the topic holds them for it."""
    return log.config.holds_for_table and end > max(log.log_start_offset, log.table_offset or 0)


def _largest_timestamp(log: Log, segment: Segment, is_active: bool) -> int:
    """Return the segment's largest timestamp, or the file's modification time if no record has one.

    After a start it is read from a file, so it is asked for last.
    """
    try:
        timestamp = segment.indexes.largest_timestamp().timestamp
    except DamagedLog:
        # Size and the file's modification time decide instead: damaged segments must not fill the disk.
        timestamp = -1
    # A sealed segment without records was emptied by compaction. Its file is newer than all others and would prevent their removal.
    if timestamp < 0 and (segment.file.size or is_active):
        timestamp = log.files.modified_ms(segment.file.log_path)
    return timestamp
