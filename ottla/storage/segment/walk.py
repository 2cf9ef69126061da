"""The walk over the batches of a file. A header is checked before its length is used.

Recovery checks the end of a log; below it a sector can still be lost or damaged. A walk that trusts lengths would then not end
(with a length of -12), or read beyond the buffer. Kafka checks less: only that a length is at least that of an empty batch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from struct import Struct

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import BATCH_LENGTH_MIN, HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC

logger = logging.getLogger(__name__)

# The fields of a header that the walk needs: base offset, length, magic and last offset delta.
WALK = Struct(">qi4xb6xi")
REMEDY = (
    "where another replica has the partition: stop this node, delete the partition's directory and .kafka_cleanshutdown "
    "beside it, and start the node; otherwise delete the records up to behind the damage (kafka-delete-records)"
)


class DamagedLog(KafkaError):
    """The bytes at `position` of a log file are damaged: this partition cannot be read there.

    The response is CORRUPT_MESSAGE for this partition only, as in Kafka.
    """

    def __init__(self, path: str, position: int, reason: str, *, order: bool = False, remedy: str = REMEDY) -> None:
        """Takes `order`: the offsets or epochs are out of order, so that the previous batch may be the damaged one."""
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
    """Yields (position, end, base offset, last offset) of each batch in [position, end), which must be batch boundaries.

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
