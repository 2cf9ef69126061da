"""The files of a log: created before the first append, then segment by segment, and renamed when a segment is deleted."""

from __future__ import annotations

from ottla.storage.errors import DiskFull, StorageFailure
from ottla.storage.files import Files
from ottla.storage.log.log_state import LogState
from ottla.storage.log.partition_dir import write_topic_id
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.segment_file import DELETED_SUFFIX, SegmentFile


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
