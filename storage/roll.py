"""Room for the next append: the active segment is mapped and allocated, or sealed and followed by a new one.

What of that waits for the disk can be run before the append, on another thread (`errand`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage import snapshot_files
from ottla.storage.errors import DiskFull, StorageFailure
from ottla.storage.log_files import create_files, delete_segments, new_segment, remove_files
from ottla.storage.log_state import LogState
from ottla.storage.roll_policy import roll_reason
from ottla.storage.segment import Segment

logger = logging.getLogger(__name__)


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
            snapshot_files.take(log)
        except DiskFull as failure:
            logger.warning("producers of %s: %s", log, failure)  # a restart reads more batches, that is all
    else:
        log.segments.replace([*log.segments.sealed, new])
        delete_segments(log, [old])
    if old.size:
        logger.info("Rolled new log segment at offset %d in %s-%d", base_offset, log.topic, log.partition)
    log.leave_gap()
    log.end_gap = (0, 0)  # the new segment's name says where the log goes on
    log.on_new_active()
    return new


def errand(log: LogState, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> Callable[[], None] | None:
    """See `Log.errand`."""
    segment = log.segments.active
    if segment.size + size <= segment.room or log.failure is not None:
        return None
    if not log.has_files:
        return partial(_run_errand, log, create_files)
    if segment.length_synced or not segment.size:
        return None
    if not roll_reason(segment, log.config, size, last_offset, max_timestamp, now_ms, log.roll_jitter_ms()):
        return None
    return partial(_run_errand, log, _sync_lengths)


def _run_errand(log: LogState, errand: Callable[[LogState], None]) -> None:
    """On any thread. The append that follows meets a failure again, or finds the log's directory offline."""
    try:
        errand(log)
    except (StorageFailure, FileNotFoundError) as error:
        if log.closed:
            return  # deleted meanwhile
        failure = StorageFailure(log.directory, error) if isinstance(error, FileNotFoundError) else error
        if not isinstance(failure, DiskFull):
            log.fail(failure)


def _sync_lengths(log: LogState) -> None:
    """Before a roll: the names in the log's directory are on the disk, and the lengths that its files have now."""
    active = log.segments.active
    allocated = active.allocated
    log.files.sync_dir(log.directory)
    active.on_disk = allocated
