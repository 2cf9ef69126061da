"""What changes a log other than appending: roll, truncate, delete, flush, close. Functions of the `Log` they change."""

from __future__ import annotations

import logging
from collections.abc import Callable

from protocol.errors import ErrorCode, KafkaError
from storage import producer_snapshot, replay
from storage.config import NEVER
from storage.errors import DiskFull, StorageFailure
from storage.log_state import LogState
from storage.partition_dir import TRUNCATION, sync_topic_id, write_topic_id
from storage.retention import SegmentFacts, segments_to_delete
from storage.roll_policy import roll_reason
from storage.segment import DELETED_SUFFIX, Segment, segment_path
from storage.walk import DamagedLog

logger = logging.getLogger(__name__)

#: Of how many producers the state is written in one turn of the loop: about a microsecond each. 50,000 held it for 68 ms.
PRODUCERS_AT_ONCE = 2_000


def create_files(log: LogState) -> None:
    """The first write is near. A directory without the topic's id would be taken for a stray, so a full disk leaves none."""
    with log.files_lock:
        if log.has_files or log.closed:
            return
        try:
            log.files.make_dirs(log.directory)
            write_topic_id(log.files, log.directory, log.topic_id)
            log.segments.active.create_file()
        except DiskFull:
            log.files.remove_tree(log.directory)
            raise
        log.epochs.store()
        log.has_files = True


def sync_lengths(log: LogState) -> None:
    """Before a roll: the names in the log's directory are on the disk, and the lengths that its files have now."""
    active = log.segments.active
    allocated = active.allocated
    log.files.sync_dir(log.directory)
    active.on_disk = allocated


def run_errand(log: LogState, errand: Callable[[LogState], None]) -> None:
    """On any thread. The append that follows meets a failure again, or finds the log's directory offline."""
    try:
        errand(log)
    except (StorageFailure, FileNotFoundError) as error:
        if log.closed:
            return  # deleted meanwhile
        failure = StorageFailure(log.directory, error) if isinstance(error, FileNotFoundError) else error
        if not isinstance(failure, DiskFull):
            log.fail(failure)


def make_room(
    log: LogState, size: int, first_offset: int, last_offset: int, max_timestamp: int, now_ms: int
) -> Segment:
    """The segment to append `size` bytes to: rolled, mapped and allocated as needed."""
    log.check_usable()
    if size > log.config.segment_bytes:
        raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, f"{size} bytes, segment.bytes is {log.config.segment_bytes}")
    segment = log.segments.active
    try:
        if not log.has_files:
            create_files(log)
        # A segment may have been begun behind a gap for a batch that the disk then refused; another leader's comes first now.
        begun_too_late = not segment.size and segment.base_offset > first_offset
        if begun_too_late or roll_reason(
            segment, log.config, size, last_offset, max_timestamp, now_ms, log.roll_jitter_ms()
        ):
            segment = roll(log, now_ms, first_offset)
        segment.make_room(size)
        log.check_usable()  # again: a flush on another thread may have failed since
    except StorageFailure as failure:
        log.fail(failure)
        raise
    log.refusal = None
    return segment


def roll(log: LogState, now_ms: int, base_offset: int = 0) -> Segment:
    """Seals the active segment; a new one begins at the log end offset, or at a later one that a follower is sent."""
    log.check_usable()
    old = log.segments.active
    base_offset = max(base_offset, log.log_end_offset)
    if old.base_offset == base_offset:
        return old  # empty: nothing to seal
    # Before the old segment is trimmed, and before anything is in the new one: a file that has lost its end in a power loss is
    # then too short or ends with zeros. Else its lost end would look like a gap, and what follows it would be kept.
    new = new_segment(log, base_offset, now_ms, sync=base_offset > log.log_end_offset or not old.length_synced)
    log.rolls += 1
    if old.size:
        try:
            old.seal()
        except StorageFailure:
            remove_files(log, new)
            raise
        log.segments.append(new)
        try:
            take_snapshot(log)
        except DiskFull as failure:
            logger.warning("producers of %s: %s", log, failure)  # a restart reads more batches, that is all
    else:
        log.segments.replace([*log.segments.sealed, new])
        delete_segments(log, [old])
    log.leave_gap()
    log.end_gap = (0, 0)  # the new segment's name says where the log goes on
    log.on_new_active()
    return new


def new_segment(log: LogState, base_offset: int, now_ms: int, allocate: bool = True, sync: bool = True) -> Segment:
    segment = Segment(
        log.files, log.mappings, log.directory, base_offset, log.config, size=0, active=True, now_ms=now_ms
    )
    try:
        segment.create_file()
        if allocate:
            segment.make_room(1)
        if sync:
            log.files.sync_dir(log.directory)
    except StorageFailure:
        remove_files(log, segment)
        raise
    return segment


def remove_files(log: LogState, segment: Segment) -> None:
    segment.removed = True
    segment.unmap()
    for name in segment.file_names():
        log.files.remove(name)
    # The log goes on in the segment before. Found again after a power loss, the empty one would hide what is appended there.
    if log.files.exists(log.directory):  # it may have been deleted meanwhile
        log.files.sync_dir(log.directory)


def take_snapshot(log: LogState, at_once: bool = False) -> None:
    """Writes the producers' state at the log end offset, unless that file is there. That of many is left to the next flush.

    Every segment but the first has one at its base offset. Of those in between two are of use: the newest, and the newest
    that the recovery point vouches for, because after a crash the other one does not count.
    """
    offset = log.log_end_offset
    if offset in log.snapshots or offset == 0:
        return
    bases = {segment.base_offset for segment in log.segments}
    between = [old for old in log.snapshots if old not in bases]
    vouched = max((old for old in between if old <= log.recovery_point), default=-1)
    if len(log.producers) > PRODUCERS_AT_ONCE and not at_once:
        log.frozen[offset] = log.producers.freeze()
    else:
        path = segment_path(log.directory, offset, producer_snapshot.SUFFIX)
        log.files.write_atomic(path, producer_snapshot.encode(log.producers), sync=False)
        log.unsynced_snapshot = offset
        log.snapshots.append(offset)
    for old in between:
        if old != vouched:
            replay.remove_snapshot(log, old)


def _write_frozen(log: LogState) -> None:
    """The snapshots that were taken since the last flush. On any thread."""
    for offset, states in list(log.frozen.items()):
        path, data = segment_path(log.directory, offset, producer_snapshot.SUFFIX), producer_snapshot.encode(states)
        with log.files_lock:
            if log.closed:
                return  # its directory may be a successor's by now
            try:
                log.files.write_atomic(path, data, sync=False)
            except DiskFull as failure:
                logger.warning("producers of %s: %s", log, failure)
                return
        with log.recovery_lock:
            counts = log.frozen.get(offset) is states  # else the log was truncated meanwhile
            if counts:
                log.snapshots.append(offset)
                log.unsynced_snapshot = offset
                del log.frozen[offset]
        if not counts:
            log.files.remove(path)


def truncate_to(log: LogState, offset: int) -> bool:
    assert offset >= 0
    log.check_usable()
    if offset >= log.log_end_offset:
        # An epoch that this replica led without an append: nobody else knows it, and it would be asked about for ever.
        log.epochs.truncate_from_end(offset)
        return False
    offset = _batch_start(log, offset)
    if offset <= log.segments[0].base_offset:
        truncate_fully_and_start_at(log, offset)
        return True
    gap_before = log.leave_gap()
    log.end_gap = (_kept(log, offset).end_before(offset), offset)
    try:
        _before_cut(log, offset)
        log.epochs.truncate_from_end(offset)
        log.files.create(f"{log.directory}/{TRUNCATION}")
    except StorageFailure as failure:
        _after_cut(log)
        log.end_gap = gap_before
        log.fail(failure)  # a full disk: nothing has changed
        raise
    try:
        _cut(log, offset)
        replay.rebuild_producers(log)
    except StorageFailure as failure:
        log.fail(failure.for_good())
        raise
    _after_cut(log)
    log.on_new_active()
    return True


def _batch_start(log: LogState, offset: int) -> int:
    """Where the batch begins that holds `offset`: batches go whole."""
    segment = log.segments[log.segments.floor_index(offset)]
    position = segment.position_of(offset) if offset >= segment.base_offset else None
    if position is None or position == segment.size:
        return offset
    return min(offset, segment.offset_at(position))


def _kept(log: LogState, offset: int) -> Segment:
    """The segment that is the last one when the log ends at `offset`."""
    keep = log.segments.floor_index(offset)
    return log.segments[keep - 1 if log.segments[keep].base_offset == offset else keep]


def _cut(log: LogState, offset: int) -> None:
    """In memory first, then in the files: reads go on even if the disk fails half-way."""
    keep = list(log.segments).index(_kept(log, offset))
    remaining, gone = list(log.segments)[: keep + 1], list(log.segments)[keep + 1 :]
    last = remaining[-1]
    if gone:
        last.reopen()
    end = last.size
    log.segments.replace(remaining)
    offset = last.truncate_to(offset)
    log.log_end_offset = offset
    log.high_watermark = min(log.high_watermark, offset)
    log.log_start_offset = min(log.log_start_offset, offset)
    # From the end, so that a crash leaves a prefix; and known to be gone before anything is appended in their place.
    delete_segments(log, gone[::-1])
    replay.forget_snapshots(log, lambda taken: taken > offset)
    last.erase(end, offset)
    log.files.sync_dir(log.directory)
    log.files.remove(f"{log.directory}/{TRUNCATION}")


def _before_cut(log: LogState, offset: int, log_start_offset: int | None = None) -> None:
    """What lies below a recovery point in a file is trusted after a crash, so the file comes first.

    Not so for `cleaned_until`: its checkpoint is written from a worker thread, which must not write the old number again.
    """
    log.cleaned_until = min(log.cleaned_until, offset)
    log.cut_to = offset
    log.cut_start = min(log.log_start_offset, offset) if log_start_offset is None else log_start_offset
    if log.on_cut is not None:
        log.on_cut(offset, log_start_offset)
    with log.recovery_lock:
        log.truncations += 1
        log.recovery_point = min(log.recovery_point, offset)


def _after_cut(log: LogState) -> None:
    log.cut_to, log.cut_start = NEVER, None


def truncate_fully_and_start_at(log: LogState, offset: int, log_start_offset: int | None = None) -> None:
    log.check_usable()
    start = offset if log_start_offset is None else log_start_offset
    try:
        if not log.has_files:
            create_files(log)
        _before_cut(log, offset, start)
        log.epochs.clear()
        log.files.create(f"{log.directory}/{TRUNCATION}")
    except StorageFailure as failure:
        _after_cut(log)
        log.fail(failure)
        raise
    try:
        gone = list(log.segments)
        replay.forget_snapshots(log, lambda taken: True)
        # Out of the way first: the new segment may have the name of one of them.
        delete_segments(log, gone[::-1])
        fresh = new_segment(log, offset, 0, allocate=False)
        log.segments.replace([fresh])
        log.files.remove(f"{log.directory}/{TRUNCATION}")
    except StorageFailure as failure:
        log.fail(failure.for_good())
        raise
    log.producers.clear()
    log.log_end_offset = offset
    log.log_start_offset = log.high_watermark = start
    log.end_gap = (0, 0)
    _after_cut(log)
    log.on_new_active()


def advance_log_start_offset(log: LogState, offset: int) -> bool:
    if offset <= log.log_start_offset:
        return False
    if offset > log.high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"the log cannot start at {offset}, above its high watermark {log.high_watermark}",
        )
    log.log_start_offset = offset
    _forget_epochs(log)
    return True


def _forget_epochs(log: LogState) -> None:
    try:
        log.epochs.truncate_from_start(log.log_start_offset)
    except DiskFull as failure:
        # What makes room must not wait for room, and epochs from before the log's start do no harm.
        logger.warning("epochs of %s: %s", log, failure)
    except StorageFailure as failure:
        log.fail(failure)
        raise


def delete_records(log: LogState, before_offset: int) -> int:
    log.check_usable()
    offset = log.high_watermark if before_offset == -1 else before_offset
    if offset < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"cannot delete records before offset {offset}")
    advance_log_start_offset(log, offset)
    return log.log_start_offset


def apply_retention(log: LogState, now_ms: int) -> int:
    log.check_usable()
    if not log.has_files:
        return 0
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
            try:
                roll(log, now_ms)
            except DiskFull:
                if count == 1:
                    raise
                count -= 1  # the others make room
        gone = segments[:count]
        log.segments.remove(gone)
        log.log_start_offset = max(log.log_start_offset, log.segments[0].base_offset)
        _forget_epochs(log)
        replay.forget_snapshots(log, lambda taken: taken < log.segments[0].base_offset)
        delete_segments(log, gone)
        log.producers.remove_expired(now_ms, log.config.producer_id_expiration_ms)
    except StorageFailure as failure:
        log.fail(failure)
        raise
    return count


def _facts(log: LogState, index: int) -> SegmentFacts:
    segment = log.segments[index]
    following = log.segments.next_base(index)
    try:
        timestamp = segment.largest_timestamp().timestamp
    except DamagedLog:
        timestamp = -1  # retention goes by size and by the file's own time: a damaged segment does not fill the disk
    if timestamp < 0 and (segment.size or following is None):
        timestamp = log.files.modified_ms(segment.log_path)
    # Else compaction has emptied it: younger than all others by its file, it would keep them from being removed.
    end = log.log_end_offset if following is None else following
    return SegmentFacts(segment.base_offset, end, segment.size, timestamp)


def delete_segments(log: LogState, gone: list[Segment]) -> None:
    """Renames the files to `.deleted`; `Logs.remove_deleted` unlinks them once file.delete.delay.ms has passed."""
    for segment in gone:
        segment.removed = True
        segment.unmap()
        for name in segment.file_names():
            if log.files.exists(name):
                log.files.rename(name, name + DELETED_SUFFIX)
                log.deleted_files.append(name + DELETED_SUFFIX)


def flush(log: LogState, now_ms: int, *, names: bool = False, entry: bool = True) -> None:
    """`names`: its directory has some to sync. `entry`: so has the one above; else that is synced once for all logs."""
    if log.closed:
        return  # deleted while the flush waited for a worker
    log.check_usable()
    if not log.has_files:
        return
    end, truncations, rolls = log.log_end_offset, log.truncations, log.rolls
    try:
        _write_frozen(log)
        names = log.epochs.flush() or names or rolls != log.rolls_synced
        if end <= log.recovery_point:
            if names:
                log.files.sync_dir(log.directory)
            return
        active = log.segments.active
        mark = (active.base_offset, active.size)
        names |= not log.entry_synced
        # From the segment behind which the recovery point lies: it was trimmed when it was sealed, after its last flush.
        for segment in log.segments.from_offset(max(log.recovery_point - 1, 0)):
            names |= _flush_segment(log, segment)
        if names:
            log.files.sync_dir(log.directory)
            log.rolls_synced = rolls
        if not log.entry_synced:
            # Creating does not wait for the disk (a topic of 1,000 partitions would take a second); flushing does.
            sync_topic_id(log.files, log.directory)
            if entry:
                log.files.sync_dir(log.directory.rpartition("/")[0])
                log.entry_synced = True
    except (StorageFailure, FileNotFoundError) as error:
        if log.closed:
            return  # deleted meanwhile
        if isinstance(error, FileNotFoundError):
            error = StorageFailure(log.directory, error)
        log.fail(error)
        raise error
    with log.recovery_lock:
        if truncations == log.truncations:
            log.recovery_point = max(log.recovery_point, end)
            log.flush_mark = mark
            log.flushed_ms = now_ms


def _flush_segment(log: LogState, segment: Segment) -> bool:
    try:
        return segment.flush()
    except (StorageFailure, FileNotFoundError) as error:
        if segment.removed or log.closed:
            return False  # deleted or truncated away meanwhile
        raise error if isinstance(error, StorageFailure) else StorageFailure(segment.log_path, error) from error


def _sync_snapshot(log: LogState) -> bool:
    """True when the directory must be synced as well."""
    if log.unsynced_snapshot != log.log_end_offset:
        return False
    log.files.sync_file(segment_path(log.directory, log.unsynced_snapshot, producer_snapshot.SUFFIX))
    log.unsynced_snapshot = -1
    return True


def close(log: LogState, clean: bool, entry: bool) -> bool:
    """False when not everything is on the disk: the next start then has to look."""
    if log.closed:
        return False
    saved = not log.has_files
    if log.failure is None and clean and log.has_files:
        try:
            log.frozen.clear()
            take_snapshot(log, at_once=True)
            names = _sync_snapshot(log)
            log.segments.active.close(trim=True)
            flush(log, 0, names=names, entry=entry)
            for segment in log.segments.from_offset(max(log.recovery_point - 1, 0)):
                if segment.trimmed:  # behind the recovery point, so that the flush passed it over
                    segment.flush()
            saved = True
        except StorageFailure as failure:
            log.fail(failure)
            logger.warning("%s is not closed cleanly: %s", log, failure)
    log.closed = True
    for segment in log.segments:
        segment.removed = not clean
        segment.unmap()
    return saved
