"""Flush of a log, which advances the recovery point, and close of a log."""

from __future__ import annotations

import logging

from ottla.storage import snapshot_files
from ottla.storage.errors import StorageFailure
from ottla.storage.log_state import LogState
from ottla.storage.partition_dir import sync_topic_id
from ottla.storage.segment import Segment

logger = logging.getLogger(__name__)


def flush(log: LogState, now_ms: int, *, names: bool = False, entry: bool = True) -> None:
    """`names`: the log's directory must be synced. `entry`: the directory above as well; otherwise one sync of it serves all logs."""
    if log.closed:
        return  # deleted while the flush waited for a worker
    log.check_usable()
    if not log.has_files:
        return
    end, truncations, rolls = log.log_end_offset, log.truncations, log.rolls
    try:
        snapshot_files.write_frozen(log)
        names = log.epochs.flush() or names or rolls != log.rolls_synced
        if end <= log.recovery_point:
            if names:
                log.files.sync_dir(log.directory)
            return
        active = log.segments.active
        mark = (active.base_offset, active.size)
        names |= not log.entry_synced
        # The segment before the recovery point is included: it was trimmed when it was sealed, after its last flush.
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


def close(log: LogState, clean: bool, entry: bool) -> bool:
    """Returns False if not everything was synced: the next start must then recover the log."""
    if log.closed:
        return False
    saved = not log.has_files
    if log.failure is None and clean and log.has_files:
        try:
            log.frozen.clear()
            snapshot_files.take(log, at_once=True)
            names = snapshot_files.sync(log)
            log.segments.active.close(trim=True)
            flush(log, 0, names=names, entry=entry)
            for segment in log.segments.from_offset(max(log.recovery_point - 1, 0)):
                if segment.trimmed:  # it lies below the recovery point, so the flush skipped it
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
