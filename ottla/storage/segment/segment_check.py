"""Finds the end of the valid part of a segment: in its last batches after a clean stop, in every unflushed batch after a crash.

Checking completes the segment's indexes and the epochs. It truncates nothing: recovery decides whether the next bytes are a
torn tail or damage.
"""

from __future__ import annotations

import logging
import zlib
from contextlib import suppress
from typing import NamedTuple

from ottla.protocol.records.batch import (
    ATTRIBUTES_AT,
    BATCH_LENGTH_MIN,
    CRC_AT,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_AT,
    crc32c,
)
from ottla.storage.epochs import LeaderEpochs
from ottla.storage.errors import CorruptFile
from ottla.storage.segment.index import RELATIVE_OFFSET_MAX
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.walk import DamagedLog, walk

logger = logging.getLogger(__name__)

ZERO_BYTES = 1 << 16
CHECKED_BYTES = 1 << 20
OFFSET_MAX = 2**63 - 1
# Message formats v0 and v1 have 26 and 34 bytes before key and value.
OLD_MAGICS, OLD_MESSAGE_BYTES_MIN = (0, 1), 26
OLD_FORMAT_REMEDY = "serve this directory with Apache Kafka, and copy the topic to a new one with its clients"
ZEROS = bytes(ZERO_BYTES)


class Valid(NamedTuple):
    """The valid part of a segment."""

    checked_from: int  # position where checking began
    remade: bool  # the indexes had to be rebuilt
    position: int  # end of the last valid batch
    offset: int  # the offset after it
    zeros: bool  # only zeros follow


def check_segment(segment: Segment, history: LeaderEpochs, recovery_point: int, clean: bool) -> Valid:
    """Check every batch above the recovery point, and complete indexes and epochs. It does not truncate.

    It does not use `walk`, because an invalid header is the end of the log here, not damage. If an offset decreases, the CRCs
    decide whether that offset is wrong or the one before it.
    """
    start, expected, remade = _resume(segment, recovery_point)
    buffer, end, position = segment.file.view(), segment.file.size, start
    unpack = HEADER.unpack_from
    offset_max = segment.base_offset + RELATIVE_OFFSET_MAX
    reached = start
    # For a batch after a jump of offsets: its position, the expected offset, and the next offset if its base offset is wrong.
    jump: tuple[int, int, int] | None = None
    while end - position >= HEADER_BYTES:
        if position + HEADER_BYTES > reached:
            reached = segment.file.reach(position, min(position + CHECKED_BYTES, end))
        base, length, epoch, magic, crc, _, delta, _, max_timestamp, *_ = unpack(buffer, position)
        following = position + length + LOG_OVERHEAD_BYTES
        last = base + delta
        if magic != MAGIC or length < BATCH_LENGTH_MIN or following > end or delta < 0 or last > offset_max:
            _check_old_format(segment.file.log_path, buffer, position, end)
            break
        if following > reached:
            reached = segment.file.reach(position, min(following + CHECKED_BYTES, end))
        # The CRC does not cover the leader epoch either. Epochs never decrease; after a crash the file may be from before a truncation.
        known = history.epoch_of(base)
        if epoch < known or (clean and epoch != known >= 0):
            break
        if crc32c(buffer[position + ATTRIBUTES_AT : following]) != crc:
            break
        if base != expected:
            if base < expected:
                # The CRC does not cover the base offset. If this batch continues from before the jump, the jump was wrong. Otherwise
                # this batch is torn: the jump is a gap of compaction, and the batches after it were acknowledged.
                if jump is not None and base == jump[2]:
                    position, expected = jump[:2]
                break
            jump = (position, expected, expected + delta + 1)
        else:
            jump = None
        if epoch > known:
            history.begin(epoch, base)
        expected = last + 1
        segment.indexes.add(position, last, max_timestamp)
        position = following
    segment.file.cold.mark_checked(start, position)
    segment.file.reach(position, end)
    return Valid(start, remade, position, expected, _only_zeros(buffer, position, end))


def _only_zeros(buffer: memoryview, start: int, end: int) -> bool:
    """Return True if all bytes are zeros. Bytes after a hole of zeros must be truncated as well as bytes before it."""
    for position in range(start, end, ZERO_BYTES):
        piece = buffer[position : min(position + ZERO_BYTES, end)]
        if piece != ZEROS[: len(piece)]:
            return False
    return True


def _resume(segment: Segment, recovery_point: int) -> tuple[int, int, bool]:
    """Return where checking begins, and the lowest offset there: the last index entry below the recovery point, or the start.

    Also returns True if an index below the recovery point is missing.
    """
    is_flushed = recovery_point > segment.base_offset
    if is_flushed and _read_indexes(segment):
        # The last indexed batch below the recovery point. If the entry does not match the log, no entry is trusted: the
        # checkpoint may be from before a truncation.
        _, position = segment.indexes.offsets.floor(recovery_point - 1)
        segment.indexes.resume_at(position)
        if position == 0:
            return 0, segment.base_offset, False
        segment.file.reach(position, segment.file.size)
        end, expected = _valid_until(segment, position, one=True)
        if end > position and expected - 1 == segment.indexes.offsets.last_offset:
            return position, segment.file.offset_at(position), False
        logger.warning("%s: does not match the log, rebuilt", segment.indexes.offsets.path)
    segment.indexes.clear()
    return 0, segment.base_offset, is_flushed


def _read_indexes(segment: Segment) -> bool:
    try:
        segment.indexes.read()
    except CorruptFile as error:
        logger.warning("%s: rebuilt from the log", error)
        return False
    return True


def clean_end(active: Segment) -> int | None:
    """Return the log end offset from the last batches of the active segment, or None if they differ from those of a clean
    stop.
    """
    try:
        active.indexes.read()
    except CorruptFile as error:
        logger.warning("%s", error)
        return None
    _, position = active.indexes.offsets.floor(2**62)
    active.file.reach(position, active.file.size)
    end, offset = _valid_until(active, position)
    if end != active.file.size:
        _check_old_format(active.file.log_path, active.file.view(), end, active.file.size)
        return None
    return offset


def _valid_until(segment: Segment, position: int, one: bool = False) -> tuple[int, int]:
    """Return where the run of valid batches (or only the first) from `position` ends, and the next offset."""
    buffer, expected = segment.file.view(), segment.base_offset
    with suppress(DamagedLog):
        for at, following, _, last in walk(
            buffer, position, segment.file.size, segment.file.log_path, expected, OFFSET_MAX
        ):
            if crc32c(buffer[at + ATTRIBUTES_AT : following]) != int.from_bytes(
                buffer[at + CRC_AT : at + ATTRIBUTES_AT]
            ):
                break
            position, expected = following, last + 1
            if one:
                break
    return position, expected


def _check_old_format(path: str, buffer: memoryview, position: int, end: int) -> None:
    """Raise if a complete message of a format before 0.11 starts here: it is no torn batch, so the log must not be truncated.

    offset i64, size i32, crc u32 (CRC-32 of what follows), magic i8 (0, 1), ...

    Raises:
        DamagedLog
    """
    if end - position < OLD_MESSAGE_BYTES_MIN or buffer[position + MAGIC_AT] not in OLD_MAGICS:
        return
    size = int.from_bytes(buffer[position + 8 : position + 12], "big", signed=True)
    following = position + LOG_OVERHEAD_BYTES + size
    if not position + OLD_MESSAGE_BYTES_MIN <= following <= end:
        return
    if zlib.crc32(buffer[position + 16 : following]) == int.from_bytes(buffer[position + 12 : position + 16], "big"):
        old = f"a message of format v{buffer[position + MAGIC_AT]} begins there, from before Kafka 0.11"
        raise DamagedLog(path, position, old, remedy=OLD_FORMAT_REMEDY)
