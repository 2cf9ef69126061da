"""Truncation: a follower removes the end of its log where it diverges from the leader's (KIP-101), or all of it.

A follower whose log ends before its leader's local start begins after the end of remote storage (KIP-405):
`restore_and_start_at`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from ottla.storage.errors import DiskFull, StorageFailure
from ottla.storage.log import replay, retention
from ottla.storage.log.durability import NO_GAP
from ottla.storage.log.log import Log
from ottla.storage.log.partition_dir import RESTORATION, TRUNCATION
from ottla.storage.producers.producer_snapshots import Decoded
from ottla.storage.producers.producer_states import ProducerState
from ottla.storage.segment.segment import Segment

logger = logging.getLogger(__name__)


def truncate_to(log: Log, offset: int, decoded: Decoded | None = None) -> bool:
    """Remove all batches that end at or after `offset`; return False if there were none."""
    assert offset >= 0
    log.partition_dir.check_usable()
    if decoded is not None and decoded.truncations != log.durability.truncations:
        decoded = None
    if offset >= log.log_end_offset:
        # Drops an epoch that this replica led without an append: no other replica knows it, so OffsetForLeaderEpoch would be retried for ever.
        log.epochs.truncate_from_end(offset)
        return False
    offset = _batch_start(log, offset)
    if offset <= log.segments[0].base_offset:
        is_remote = log.config.remote_storage_enable  # the log then starts before the batches that are here
        truncate_fully_and_start_at(log, offset, min(log.log_start_offset, offset) if is_remote else None)
        return True
    gap_before = log.durability.leave_gap()
    log.durability.set_gap((_kept(log, offset).end_before(offset), offset))
    try:
        _begin_truncation(log, offset)
        log.epochs.truncate_from_end(offset)
        log.files.create(f"{log.directory}/{TRUNCATION}")
    except StorageFailure as failure:
        log.durability.end_truncation()
        log.durability.set_gap(gap_before)
        log.fail(failure)  # if the disk is only full, nothing has changed
        raise
    try:
        _cut(log, offset)
        replay.rebuild_producers(log, decoded)
    except StorageFailure as failure:
        log.fail(failure.for_good())
        raise
    log.durability.end_truncation()
    log.room.on_new_active()
    return True


def truncation_job(log: Log, offset: int) -> Callable[[], Decoded | None] | None:
    """Return a function that reads the producer states that the truncation needs, for a worker thread.

    It changes nothing. Its result is for `truncate_to`, which reads again if the log was truncated meanwhile.
    """
    return log.snapshots.decoding(log.log_start_offset, offset, log.durability.truncations)


def truncate_fully_and_start_at(log: Log, offset: int, log_start_offset: int | None = None) -> None:
    """Remove all batches; the next append starts at `offset`.

    The log may start before that, at `log_start_offset`, where the rest is in remote storage: it then keeps the epochs of that.
    """
    log.partition_dir.check_usable()
    start = offset if log_start_offset is None else log_start_offset
    logger.info("Truncating %s-%d fully and starting at offset %d", log.topic, log.partition, start)
    try:
        if not log.partition_dir.exists:
            log.room.create_files()
        _begin_truncation(log, offset, start)
        log.epochs.truncate_from_end(offset if start < offset else 0)
        log.files.create(f"{log.directory}/{TRUNCATION}")
    except StorageFailure as failure:
        log.durability.end_truncation()
        log.fail(failure)
        raise
    try:
        _empty(log, offset, start)
        log.files.remove(f"{log.directory}/{TRUNCATION}")
    except StorageFailure as failure:
        log.fail(failure.for_good())
        raise
    log.durability.end_truncation()
    log.room.on_new_active()


def _empty(log: Log, offset: int, start: int) -> None:
    log.snapshots.forget(lambda taken: True)
    # Deleted first: the new segment may have the base offset, and so the name, of one of them.
    log.partition_dir.delete(list(log.segments)[::-1])
    fresh = log.room.new_segment(offset, 0, allocate=False)
    log.segments.replace([fresh])
    log.producers.clear()
    log.restart_at(offset, start)
    log.durability.set_gap(NO_GAP)


class Restored(NamedTuple):
    """The state of a log at the end of a remote segment: the next offset, and the epochs and producer states before it."""

    offset: int
    epochs: list[tuple[int, int]]
    producers: list[ProducerState]


def restore_and_start_at(log: Log, restored: Restored, log_start_offset: int) -> None:
    """Remove all batches; the next append starts after the restored state, and the log starts at `log_start_offset`.

    All of it is on the disk when this returns, or nothing: a crash in between empties the log (RESTORATION).
    """
    log.partition_dir.check_usable()
    offset, marker = restored.offset, f"{log.directory}/{RESTORATION}"
    assert log_start_offset <= offset
    logger.info("Restoring %s-%d from remote storage and starting at offset %d", log.topic, log.partition, offset)
    try:
        if not log.partition_dir.exists:
            log.room.create_files()
        _begin_truncation(log, offset, log_start_offset)
        log.files.create(marker)
        _write_ahead(log, restored, marker)
    except StorageFailure as failure:
        log.durability.end_truncation()
        log.fail(failure)  # if the disk is only full, nothing has changed
        raise
    try:
        _empty(log, offset, log_start_offset)
        log.epochs.take_over_written(restored.epochs)
        log.epochs.truncate_from_start(log_start_offset)
        log.producers.load(restored.producers)
        log.snapshots.open([offset])
        log.files.sync_dir(log.directory)
        log.files.remove(marker)
        log.files.sync_dir(
            log.directory
        )  # otherwise a power loss could bring it back, and destroy records that are appended from now on
    except StorageFailure as failure:
        log.fail(failure.for_good())
        raise
    log.durability.restored_at(offset)
    log.durability.end_truncation()
    log.room.on_new_active()


def _write_ahead(log: Log, restored: Restored, marker: str) -> None:
    """Write the files that need room, and sync them, before anything of the log is removed."""
    try:
        log.epochs.write_ahead(restored.epochs)
        log.snapshots.write_ahead(restored.offset, restored.producers)
        log.files.sync_dir(log.directory)
    except DiskFull:
        for path in (log.epochs.written_ahead, log.snapshots.path(restored.offset), marker):
            log.files.remove(path)
        raise


def _batch_start(log: Log, offset: int) -> int:
    """Return the base offset of the batch that contains `offset`: truncation removes complete batches."""
    segment = log.segments[log.segments.floor_index(offset)]
    position = segment.position_of(offset) if offset >= segment.base_offset else None
    if position is None or position == segment.file.size:
        return offset
    return min(offset, segment.file.offset_at(position))


def _kept(log: Log, offset: int) -> Segment:
    """Return the segment that is the last one if the log ends at `offset`."""
    keep = log.segments.floor_index(offset)
    return log.segments[keep - 1 if log.segments[keep].base_offset == offset else keep]


def _cut(log: Log, offset: int) -> None:
    """Truncate in memory first, then in the files, so that reads are right even if the disk fails in between."""
    keep = list(log.segments).index(_kept(log, offset))
    remaining, gone = list(log.segments)[: keep + 1], list(log.segments)[keep + 1 :]
    last = remaining[-1]
    if gone:
        last.reopen()
    end = last.file.size
    log.segments.replace(remaining)
    offset = last.truncate_to(offset)
    log.end_at(offset)
    # Deleted from the end, so that a crash leaves a prefix, and synced before batches are appended in their place.
    log.partition_dir.delete(gone[::-1])
    log.snapshots.forget(lambda taken: taken > offset)
    last.erase(end, offset)
    log.files.sync_dir(log.directory)
    log.files.remove(f"{log.directory}/{TRUNCATION}")


def _begin_truncation(log: Log, offset: int, log_start_offset: int | None = None) -> None:
    """Lower the checkpoints before the log is truncated.

    `cleaned_until` is lowered even before: a worker writes its checkpoint, and must not write the old offset again.
    """
    retention.finish(log)
    log.cleaning.truncated(offset)
    start = min(log.log_start_offset, offset) if log_start_offset is None else log_start_offset
    log.durability.begin_truncation(offset, start, log_start_offset)
