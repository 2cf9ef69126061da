"""A future log follows the log that it is to replace, as a follower does its leader's, within one thread.

Batches are appended as they are, so that leader epochs, producer states and indexes come from the same code as a follower's.
The two logs agree where their epochs do (KIP-101): `align` truncates the future log after the current one was truncated, and
after a restart. All functions run on the thread that appends, and change the future log only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from ottla.protocol.records.batch import MAX_TIMESTAMP_AT, PRODUCER_ID_AT
from ottla.protocol.work import DiskJob
from ottla.storage.epochs import NO_EPOCH
from ottla.storage.log.log import Log, Origin
from ottla.storage.log.retention import apply_retention
from ottla.storage.log.truncate import truncate_fully_and_start_at, truncate_to
from ottla.storage.log.trusted_append import append_trusted

#: The value of flush.messages with which a record is acknowledged only once it is on the disk.
EVERY_RECORD = 1

Epochs = Sequence[tuple[int, int]]


def agreement(first: Epochs, second: Epochs, start: int, end: int) -> int:
    """Returns the offset up to which two logs agree in [start, end): up to there each offset has the same epoch in both. Pure."""
    bounds = sorted({start, end, *(at for _, at in (*first, *second) if start < at < end)})
    for at, following in pairwise(bounds):
        if _epoch_at(first, at) != _epoch_at(second, at):
            return at
        assert following > at
    return end


def _epoch_at(epochs: Epochs, offset: int) -> int:
    return next((epoch for epoch, start in reversed(epochs) if start <= offset), NO_EPOCH)


def align(current: Log, future: Log) -> None:
    """Makes the future log a part of the current one: it is truncated where they do not agree."""
    start = max(current.log_start_offset, future.log_start_offset)
    end = min(current.log_end_offset, future.log_end_offset)
    agreed = agreement(current.epochs.entries, future.epochs.entries, start, end) if start < end else -1
    if agreed > start:
        if agreed < future.log_end_offset:
            truncate_to(future, agreed)
    elif (future.log_start_offset, future.log_end_offset) != (current.log_start_offset, current.log_start_offset):
        truncate_fully_and_start_at(future, current.log_start_offset)


def follow_start(current: Log, future: Log, now_ms: int) -> None:
    """Takes over the log start offset, and removes the segments that retention does not keep."""
    start = current.log_start_offset
    if start > future.log_end_offset:
        truncate_fully_and_start_at(future, start)
    elif start > future.log_start_offset:
        future.advance_high_watermark(current.high_watermark)
        future.advance_log_start_offset(start)
        apply_retention(future, now_ms)


def copy_some(current: Log, future: Log, bytes_max: int, now_ms: int, *, disk_job_done: bool = False) -> int | DiskJob:
    """Copies some batches; returns their size, 0 if the future log has all of them, or a disk job (`Room.disk_job`) that it needs first.

    Raises:
        KafkaError: CORRUPT_MESSAGE: the current log is damaged there.
        StorageFailure
    """
    records = current.read(future.log_end_offset, max_bytes=bytes_max).records
    size = len(records)
    if not size:
        return 0
    # The first batch's: it decides whether the append begins with a roll by time.
    max_timestamp = int.from_bytes(records[MAX_TIMESTAMP_AT:PRODUCER_ID_AT], "big", signed=True)
    job = future.room.disk_job(size, future.log_end_offset, max_timestamp, now_ms)
    if job is not None and not disk_job_done:
        return job
    append_trusted(future, records, leader_epoch=current.epochs.latest, now_ms=now_ms, origin=Origin.REPLICATION)
    future.advance_high_watermark(current.high_watermark)
    return size


class ReadAhead(NamedTuple):
    """A read for a worker thread, after which the copying waits for no disk up to this offset."""

    read: Callable[[], object]
    to_offset: int


def read_ahead(log: Log, offset: int, size: int) -> ReadAhead | None:
    """Returns a read of `size` bytes from the disk if an earlier process wrote the batch at this offset, else None.

    The event loop would otherwise wait for the disk at each page. What is read stays in the page cache.
    """
    index = log.segments.floor_index(offset)
    segment = log.segments[index]
    start = segment.position_of(offset)
    if start is None or start >= segment.file.in_memory_from:
        return None
    end = segment.end_of_slice(start, segment.file.size, size, True, start)
    following = log.segments.next_base(index)
    segment_end = log.log_end_offset if following is None else following
    to_offset = segment_end if end == segment.file.size else segment.file.offset_at(end)
    return ReadAhead(partial(_read, log, segment.file.log_path, start, end - start), to_offset)


def _read(log: Log, path: str, position: int, size: int) -> None:
    with suppress(FileNotFoundError):  # retention may have removed the segment meanwhile
        log.files.pread(path, position, size)


def is_flushed(current: Log, future: Log) -> bool:
    """Returns True if all that is on the disk in the current log is there in the future log: a power loss must not take it back.

    With flush.messages=1 all of both: a follower whose flush is interrupted by the replacement counts its log as flushed.
    """
    if current.config.flush_messages == EVERY_RECORD:
        return current.recovery_point == current.log_end_offset and future.recovery_point == future.log_end_offset
    return future.recovery_point >= min(current.recovery_point, future.log_end_offset)
