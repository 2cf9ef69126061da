"""The walk over the batches of a file, and the check of bytes that an earlier process wrote.

Recovery checks the end of a log; below it a sector can still be lost or damaged. So a header is checked before its length is used:
a walk that trusts lengths would not end (with a length of -12), or read beyond the buffer. Kafka checks only that a length is at
least that of an empty batch.

Bytes below the recovery point are not read at start, so their CRCs are checked before they are served (`ColdBytes`). In Kafka the
consumer finds damage by the CRC, but the CRC does not cover a batch's offset and length, and a consumer that does not check it
reads wrong bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from struct import Struct

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import (
    ATTRIBUTES_AT,
    BATCH_LENGTH_MIN,
    CRC_AT,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_AT,
    PARTITION_LEADER_EPOCH_AT,
    crc32c,
)

# The fields of a header that the walk needs: base offset, length, magic and last offset delta.
WALK = Struct(">qi4xb6xi")
# The limit of one read: 2,000 small batches take about 1 ms of the event loop. A read of more batches returns fewer bytes.
BATCHES_MAX = 2000
REMEDY = (
    "where another replica has the partition: stop this node, delete the partition's directory and .kafka_cleanshutdown "
    "beside it, and start the node; otherwise delete the records up to behind the damage (kafka-delete-records)"
)


class DamagedLog(KafkaError):
    """The bytes at `position` of a log file are damaged: this partition cannot be read there.

    The response is CORRUPT_MESSAGE for this partition only, as in Kafka.
    """

    def __init__(self, path: str, position: int, reason: str, *, order: bool = False, remedy: str = REMEDY) -> None:
        """Take `order`: the offsets or epochs are out of order, so that the previous batch may be the damaged one."""
        super().__init__(ErrorCode.CORRUPT_MESSAGE, f"{path} is damaged at byte {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason
        self.order = order
        self.remedy = remedy

    def __reduce__(self) -> tuple[object, ...]:  # the log cleaner's process sends it to the node
        return partial(type(self), order=self.order, remedy=self.remedy), (self.path, self.position, self.reason)


def walk(
    buffer: memoryview,
    position: int,
    end: int,
    path: str,
    base_offset: int,
    limit: int,
    reach: Callable[[int], int] | None = None,
) -> Iterator[tuple[int, int, int, int]]:
    """Yield (position, end, base offset, last offset) of each batch in [position, end), which must be batch boundaries.

    Their offsets lie in [`base_offset`, `limit`].
    `reach`, if given, brings bytes from a position on into memory and returns the end of the part in memory.

    Raises:
        DamagedLog: a header is not valid in this file.
    """
    unpack = WALK.unpack_from
    expected = base_offset
    reached = end if reach is None else position
    while position < end:
        if position + HEADER_BYTES > reached:
            if position + HEADER_BYTES > end:
                raise DamagedLog(path, position, f"{end - position} bytes are too few for a batch")
            reached = reach(position) if reach is not None else end
        base, length, magic, delta = unpack(buffer, position)
        following = position + length + LOG_OVERHEAD_BYTES
        last = base + delta
        if (
            magic != MAGIC
            or length < BATCH_LENGTH_MIN
            or following > end
            or delta < 0
            or base < expected
            or last > limit
        ):
            reason = _reason(base, length, magic, delta, expected, end - position)
            raise DamagedLog(
                path, position, reason, order=magic == MAGIC and BATCH_LENGTH_MIN <= length <= end - position
            )
        yield position, following, base, last
        expected = last + 1
        position = following


def _reason(base: int, length: int, magic: int, delta: int, expected: int, room: int) -> str:
    if magic != MAGIC:
        return f"the format of its batch is {magic}, not {MAGIC}"
    if not BATCH_LENGTH_MIN <= length <= room - LOG_OVERHEAD_BYTES:
        return f"a batch length of {length} does not fit the {room} bytes that are left"
    return f"a batch at offset {base} with last offset delta {delta} cannot follow offset {expected - 1}"


class ColdBytes:
    """Bytes that may be cold: those from position `until` on were written by this process. Below it, one range is known to be valid.

    Each range is checked once (0.03 ms per MB and 0.3 us per batch); bytes that this process has written or recovered count as checked.
    """

    __slots__ = ("_from", "_to", "epoch_at", "until")

    def __init__(self, until: int) -> None:
        self.until = until
        self.epoch_at: Callable[[int], int] | None = None
        self._from = self._to = 0

    def know_epochs(self, epoch_at: Callable[[int], int]) -> None:
        """Set the lookup of the leader epoch of an offset (-1 if unknown), because the CRC does not cover the epoch in the batch."""
        self.epoch_at = epoch_at

    def mark_checked(self, start: int, end: int) -> None:
        """Mark [start, end), which contains complete batches, as checked and valid."""
        if start <= self._to and end >= self._from:
            start, end = min(start, self._from), max(end, self._to)
        self._from, self._to = start, end
        if start == 0 and end >= self.until:
            self.until = 0

    def cut(self, size: int) -> None:
        self.until = min(self.until, size)
        self._to = max(min(self._to, size), self._from)

    def is_checked(self, start: int, end: int) -> bool:
        return start >= self.until or (self._from <= start and min(end, self.until) <= self._to)

    def check(
        self, buffer: memoryview, batches: Iterator[tuple[int, int, int, int]], start: int, end: int, path: str
    ) -> int:
        """Return the end of the valid part of [start, end): the first damaged batch, at most BATCHES_MAX batches on. `batches` yields them.

        Raises:
            DamagedLog: the first batch is damaged.
        """
        position, before, count, known = start, start, 0, -1
        try:
            for at, following, base, _ in batches:
                if at >= end or count == BATCHES_MAX:
                    break
                count += 1
                epoch = int.from_bytes(buffer[at + PARTITION_LEADER_EPOCH_AT : at + MAGIC_AT], "big", signed=True)
                if epoch != known and self.epoch_at is not None:
                    known = self.epoch_at(base)
                    if epoch != known >= 0:
                        raise DamagedLog(
                            path, at, f"its batch is of leader epoch {epoch}, and offset {base} of {known}"
                        )
                    known = epoch
                crc = int.from_bytes(buffer[at + CRC_AT : at + ATTRIBUTES_AT], "big")
                if crc32c(buffer[at + ATTRIBUTES_AT : following]) != crc:
                    raise DamagedLog(path, at, "the CRC of its batch does not match")
                before, position = position, following
        except DamagedLog as damage:
            if damage.order and damage.position == position:
                position = before
            if position == start:
                raise
        self.mark_checked(start, position)
        return position
