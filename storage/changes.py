"""What changes a log other than appending: roll, truncate, delete, flush, close. Functions of the `Log` they change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import ErrorCode, KafkaError
from storage import producer_snapshot, replay
from storage.errors import StorageFailure
from storage.retention import SegmentFacts, segments_to_delete
from storage.segment import DELETED_SUFFIX, Segment, segment_path

if TYPE_CHECKING:
    from storage.log import Log


def roll(log: Log, now_ms: int, base_offset: int = 0) -> Segment:
    """Seals the active segment; a new one begins at the log end offset, or at a later one that a follower is sent."""
    old = log.segments.active
    base_offset = max(base_offset, log.log_end_offset)
    if old.base_offset == base_offset:
        return old  # empty: nothing to seal
    new = new_segment(log, base_offset, now_ms)
    if old.size:
        try:
            old.seal()
        except StorageFailure:
            remove_files(log, new)
            raise
        log.segments.append(new)
        take_snapshot(log)
    else:
        log.segments.replace([*log.segments.sealed, new])
        delete_segments(log, [old])
    log.on_new_active()
    return new


def new_segment(log: Log, base_offset: int, now_ms: int) -> Segment:
    segment = Segment(
        log.files, log.mappings, log.directory, base_offset, log.config, size=0, active=True, now_ms=now_ms
    )
    try:
        segment.create_files()
        segment.make_room(1)
        log.files.sync_dir(log.directory)
    except StorageFailure:
        remove_files(log, segment)
        raise
    return segment


def remove_files(log: Log, segment: Segment) -> None:
    segment.removed = True
    segment.unmap()
    for name in segment.file_names():
        log.files.remove(name)


def take_snapshot(log: Log, sync: bool = False) -> None:
    """Writes the producers' state at the log end offset, unless that file is there.

    Every segment but the first has one at its base offset. Of those in between two are of use: the newest, and the newest
    that the recovery point vouches for, because after a crash the other one does not count.
    """
    offset = log.log_end_offset
    if offset in log.snapshots or offset == 0:
        return
    path = segment_path(log.directory, offset, producer_snapshot.SUFFIX)
    log.files.write_atomic(path, producer_snapshot.encode(log.producers), sync)
    bases = {segment.base_offset for segment in log.segments}
    between = [old for old in log.snapshots if old not in bases]
    vouched = max((old for old in between if old <= log.recovery_point), default=-1)
    for old in between:
        if old != vouched:
            replay.remove_snapshot(log, old)
    log.snapshots.append(offset)


def truncate_to(log: Log, offset: int) -> bool:
    assert offset >= 0
    log.check_usable()
    if offset >= log.log_end_offset:
        # An epoch that this replica led without an append: nobody else knows it, and it would be asked about for ever.
        log.epochs.truncate_from_end(offset)
        return False
    if offset <= log.segments[0].base_offset:
        truncate_fully_and_start_at(log, offset)
        return True
    try:
        keep = log.segments.floor_index(offset)
        if log.segments[keep].base_offset == offset:
            keep -= 1
        gone = list(log.segments)[keep + 1 :]
        remaining = list(log.segments)[: keep + 1]
        last = remaining[-1]
        if gone:
            last.reopen()
        log.segments.replace(remaining)
        offset = last.truncate_to(offset)
        delete_segments(log, gone)
        log.truncations += 1
        log.log_end_offset = offset
        log.recovery_point = min(log.recovery_point, offset)
        log.high_watermark = min(log.high_watermark, offset)
        log.log_start_offset = min(log.log_start_offset, offset)
        log.epochs.truncate_from_end(offset)
        replay.rebuild_producers(log)
    except StorageFailure as failure:
        log.fail(failure)
        raise
    log.on_new_active()
    return True


def truncate_fully_and_start_at(log: Log, offset: int, log_start_offset: int | None = None) -> None:
    log.check_usable()
    try:
        gone = list(log.segments)
        for snapshot in log.snapshots:
            log.files.remove(segment_path(log.directory, snapshot, producer_snapshot.SUFFIX))
        log.snapshots.clear()
        # Out of the way first: the new segment may have the name of one of them.
        delete_segments(log, gone)
        fresh = new_segment(log, offset, 0)
        log.segments.replace([fresh])
        log.epochs.clear()
    except StorageFailure as failure:
        log.fail(failure)
        raise
    log.truncations += 1
    log.producers.clear()
    log.log_end_offset = offset
    log.log_start_offset = offset if log_start_offset is None else log_start_offset
    log.high_watermark = log.log_start_offset
    log.recovery_point = min(log.recovery_point, offset)
    log.on_new_active()


def advance_log_start_offset(log: Log, offset: int) -> bool:
    if offset <= log.log_start_offset:
        return False
    if offset > log.high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"the log cannot start at {offset}, above its high watermark {log.high_watermark}",
        )
    log.log_start_offset = offset
    log.epochs.truncate_from_start(offset)
    return True


def delete_records(log: Log, before_offset: int) -> int:
    log.check_usable()
    offset = log.high_watermark if before_offset == -1 else before_offset
    if offset < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"cannot delete records before offset {offset}")
    advance_log_start_offset(log, offset)
    return log.log_start_offset


def apply_retention(log: Log, now_ms: int) -> int:
    log.check_usable()
    segments = list(log.segments)
    count = segments_to_delete(
        [_facts(log, i) for i in range(len(segments))],
        log.config,
        log_start_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
        now_ms=now_ms,
    )
    if not count:
        return 0
    try:
        if count == len(segments):
            roll(log, now_ms)
        gone = segments[:count]
        log.segments.remove(gone)
        log.log_start_offset = max(log.log_start_offset, log.segments[0].base_offset)
        log.epochs.truncate_from_start(log.log_start_offset)
        for snapshot in [o for o in log.snapshots if o < log.segments[0].base_offset]:
            log.files.remove(segment_path(log.directory, snapshot, producer_snapshot.SUFFIX))
            log.snapshots.remove(snapshot)
        delete_segments(log, gone)
        log.producers.remove_expired(now_ms, log.config.producer_id_expiration_ms)
    except StorageFailure as failure:
        log.fail(failure)
        raise
    return count


def _facts(log: Log, index: int) -> SegmentFacts:
    segment = log.segments[index]
    following = log.segments.next_base(index)
    timestamp = segment.largest_timestamp().timestamp
    if timestamp < 0:
        timestamp = log.files.modified_ms(segment.log_path)
    end = log.log_end_offset if following is None else following
    return SegmentFacts(segment.base_offset, end, segment.size, timestamp)


def delete_segments(log: Log, gone: list[Segment]) -> None:
    """Renames the files to `.deleted`; `Log.remove_deleted` unlinks them once file.delete.delay.ms has passed."""
    for segment in gone:
        segment.removed = True
        segment.unmap()
        for name in segment.file_names():
            if log.files.exists(name):
                log.files.rename(name, name + DELETED_SUFFIX)
                log.deleted_files.append(name + DELETED_SUFFIX)


def flush(log: Log, now_ms: int) -> None:
    log.check_usable()
    end, truncations = log.log_end_offset, log.truncations
    if end <= log.recovery_point:
        return
    try:
        log.epochs.flush()
        active = log.segments.active
        mark = (active.base_offset, active.size)
        for segment in log.segments.from_offset(log.recovery_point):
            _flush_segment(log, segment)
        if not log.entry_synced:
            log.files.sync_dir(log.directory)
            # Creating does not wait for the disk (a topic of 1,000 partitions would take a second); flushing does.
            log.files.sync_dir(log.directory.rpartition("/")[0])
            log.entry_synced = True
    except StorageFailure as failure:
        log.fail(failure)
        raise
    if truncations == log.truncations:
        log.recovery_point = max(log.recovery_point, end)
        log.flush_mark = mark
        log.flushed_ms = now_ms


def _flush_segment(log: Log, segment: Segment) -> None:
    try:
        segment.flush()
    except (StorageFailure, FileNotFoundError) as error:
        if segment.removed or log.closed:
            return  # deleted or truncated away meanwhile
        raise error if isinstance(error, StorageFailure) else StorageFailure(segment.log_path, error) from error


def close(log: Log, clean: bool) -> None:
    if log.closed:
        return
    if log.failure is None and clean:
        try:
            take_snapshot(log, sync=True)
            log.segments.active.close(trim=True)
            flush(log, 0)
        except StorageFailure as failure:
            log.fail(failure)
    log.closed = True
    for segment in log.segments:
        segment.removed = not clean
        segment.unmap()
