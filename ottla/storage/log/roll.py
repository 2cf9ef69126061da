"""Room for the next append: the active segment is mapped and allocated, or sealed and followed by a new one.

The files of a log are created before its first append, then segment by segment, and are renamed when a segment is deleted.

The parts of this that wait for the disk can run before the append, on another thread (`errand`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.work import Errand
from ottla.storage.errors import DiskFull, StorageFailure
from ottla.storage.files import Files
from ottla.storage.log.durability import NO_GAP
from ottla.storage.log.log_state import LogState
from ottla.storage.log.partition_dir import write_topic_id
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.segment_file import DELETED_SUFFIX, SegmentFile
from ottla.storage.segment.segments import roll_reason

logger = logging.getLogger(__name__)

#: The number of other logs whose files are created with a log's first files. Each takes 0.1 ms, on a slow file system 0.6 ms.
FILES_AHEAD = 15


def check_size(log: LogState, size: int) -> None:
    """Raises KafkaError(RECORD_LIST_TOO_LARGE) for a batch that is larger than a segment."""
    if size > log.config.segment_bytes:
        raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, f"{size} bytes, segment.bytes is {log.config.segment_bytes}")


def make_room(
    log: LogState, size: int, first_offset: int, last_offset: int, max_timestamp: int, now_ms: int
) -> Segment:
    """Returns the segment for an append of `size` bytes; it is rolled, mapped and allocated as needed.

    Batches larger than a segment get one of their own: a follower takes what its leader has (`check_size` is the leader's).
    """
    log.check_usable()
    segment = log.segments.active
    try:
        if not log.partition_dir.exists:
            create_files(log)
        # A segment may have been created after a gap for a batch whose append failed; a new leader's batch has a lower offset now.
        begun_too_late = not segment.file.size and segment.base_offset > first_offset
        if begun_too_late or roll_reason(
            segment, log.config, size, last_offset, max_timestamp, now_ms, log.roll_jitter_ms()
        ):
            segment = roll(log, now_ms, first_offset)
        segment.make_room(size)
        log.check_usable()  # checked again: a flush on another thread may have failed since
    except StorageFailure as failure:
        log.fail(failure)
        raise
    log.room_was_made()
    return segment


def roll(log: LogState, now_ms: int, base_offset: int = 0) -> Segment:
    """Seals the active segment; the new one begins at the log end offset, or at the later offset of a replicated batch."""
    log.check_usable()
    old = log.segments.active
    base_offset = max(base_offset, log.log_end_offset)
    if old.base_offset == base_offset:
        return old  # empty: nothing to seal
    # The sync comes before the old segment is trimmed and before the new one has batches: a file that lost its end in a power
    # loss is then too short or ends with zeros. Otherwise its lost end would look like a gap, and later batches would be kept.
    new = new_segment(log, base_offset, now_ms, sync=base_offset > log.log_end_offset or not old.file.length_synced)
    log.durability.rolled()
    if old.file.size:
        try:
            old.seal()
        except StorageFailure:
            remove_files(log, new)
            raise
        log.segments.append(new)
        try:
            log.take_snapshot()
        except DiskFull as failure:
            logger.warning("producers of %s: %s", log, failure)  # without it, a restart only reads more batches
    else:
        log.segments.replace([*log.segments.sealed, new])
        delete_segments(log, [old])
    if old.file.size:
        logger.info("Rolled new log segment at offset %d in %s-%d", base_offset, log.topic, log.partition)
    log.durability.leave_gap()
    log.durability.set_gap(NO_GAP)  # the new segment's base offset says where the log continues
    log.on_new_active()
    return new


def errand(log: LogState, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> Errand | None:
    """Returns the file system calls that the next roll needs (`Log.errand`)."""
    segment = log.segments.active
    if log.has_room(size, last_offset, max_timestamp, now_ms) or log.failure is not None:
        return None
    if not log.partition_dir.exists:
        return Errand(log.log_dir, partial(_create_files_ahead, log))
    if segment.file.length_synced or not segment.file.size:
        return None
    if not roll_reason(segment, log.config, size, last_offset, max_timestamp, now_ms, log.roll_jitter_ms()):
        return None
    return Errand(log.log_dir, partial(run_errand, log, sync_lengths))


def _create_files_ahead(log: LogState) -> None:
    """Creates the files of this log, and of some other logs of the topic in the same log directory.

    A client that writes to one partition of a new topic soon writes to the next ones. Without that each first record waits for a thread:
    10,000 of them took 6.9 s, and a third of the CPU time was for handing over.
    """
    run_errand(log, create_files)
    ahead = log.without_files
    for _ in range(min(len(ahead), FILES_AHEAD)):
        with suppress(IndexError):  # another thread has taken the last one
            run_errand(ahead.popleft(), create_files)


def run_errand(log: LogState, errand: Callable[[LogState], None]) -> None:
    """Runs an errand on any thread. If it fails, the next append fails again, or finds the log directory offline."""
    try:
        errand(log)
    except (StorageFailure, FileNotFoundError) as error:
        if log.closed:
            return  # deleted meanwhile
        failure = StorageFailure(log.directory, error) if isinstance(error, FileNotFoundError) else error
        if not isinstance(failure, DiskFull):
            log.fail(failure)


def sync_lengths(log: LogState) -> None:
    """Syncs the log's directory, and the current lengths of its files, before a roll."""
    active = log.segments.active
    allocated = active.file.allocated
    log.files.sync_dir(log.directory)
    active.file.length_is_synced(allocated)


def create_files(log: LogState) -> None:
    """Creates the partition directory and its files before the first append.

    If the disk is full the directory is removed again: one without partition.metadata is treated as a stray replica.
    """
    place = log.partition_dir
    if place.before_files is not None and not place.exists:
        place.before_files()  # it waits for the disk, and the event loop may wait for the lock
    with place.lock:
        if place.exists or log.closed:
            return
        try:
            log.files.make_dirs(log.directory)
            write_topic_id(log.files, log.directory, log.topic_id)
            log.segments.active.create_file()
        except DiskFull:
            log.files.remove_tree(log.directory)
            raise
        log.epochs.store()
        place.is_made()


def new_segment(log: LogState, base_offset: int, now_ms: int, allocate: bool = True, sync: bool = True) -> Segment:
    segment = Segment(SegmentFile(log.files, log.mappings, log.directory, base_offset, log.config), now_ms)
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
    segment.mark_removed()
    segment.unmap()
    for name in segment.file.names():
        log.files.remove(name)
    # Appends continue in the previous segment. If the empty new one reappeared after a power loss, it would hide them.
    if log.files.exists(log.directory):  # the log may have been deleted meanwhile
        log.files.sync_dir(log.directory)


def relocate(log: LogState, directory: str) -> None:
    """Renames the log's directory, without a sync of its entry.

    Raises:
        StorageFailure: nothing has changed.
    """
    for segment in log.segments:
        segment.unmap()
    log.partition_dir.rename(directory)
    log.snapshots.relocate(directory)
    log.epochs.relocate(directory)
    for segment in log.segments:
        segment.relocate(directory)
    log.durability.entry_is_new()


def delete_segments(log: LogState, gone: list[Segment]) -> None:
    """Renames the files to `.deleted`; `Logs.remove_deleted` unlinks them once file.delete.delay.ms has passed."""
    for segment in gone:
        segment.mark_removed()
        segment.unmap()
        for name in segment.file.names():
            if (renamed := rename_deleted(log.files, name)) is not None:
                log.partition_dir.add_deleted(renamed)


def rename_deleted(files: Files, name: str) -> str | None:
    """Renames the file to `.deleted` and returns its new name, or None if there is no such file."""
    if not files.exists(name):
        return None
    files.rename(name, name + DELETED_SUFFIX)
    return name + DELETED_SUFFIX
