"""Bytes of a segment that an earlier process wrote: their CRCs are checked before they are served.

Bytes below the recovery point are not read at start, and the disk may have damaged them since. In Kafka the consumer finds
that out by the CRC, but the CRC does not cover a batch's offset and length, and a consumer that does not check it reads wrong bytes.
Each range is checked once (0.03 ms per MB and 0.3 us per batch); bytes that this process has written or recovered count as checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ottla.protocol.records.batch import ATTRIBUTES_AT, CRC_AT, MAGIC_AT, PARTITION_LEADER_EPOCH_AT
from ottla.protocol.records.crc import crc32c
from ottla.storage.segment.walk import DamagedLog

# The limit of one read: 2,000 small batches take about 1 ms of the event loop. A read of more batches returns fewer bytes.
BATCHES_MAX = 2000


class ColdBytes:
    """Bytes that may be cold: those from position `until` on were written by this process. Below it, one range is known to be valid."""

    __slots__ = ("_from", "_to", "epoch_at", "until")

    def __init__(self, until: int) -> None:
        self.until = until
        self.epoch_at: Callable[[int], int] | None = None
        self._from = self._to = 0

    def know_epochs(self, epoch_at: Callable[[int], int]) -> None:
        """Sets the lookup of the leader epoch of an offset (-1 if unknown), because the CRC does not cover the epoch in the batch."""
        self.epoch_at = epoch_at

    def mark_checked(self, start: int, end: int) -> None:
        """Marks [start, end), which contains complete batches, as checked and valid."""
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
        """Returns the end of the valid part of [start, end): the first damaged batch, at most BATCHES_MAX batches on. `batches` yields them.

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
