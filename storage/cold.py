"""The bytes of a segment that a process before this one wrote: they are checked before they are given to anyone.

Below the recovery point nothing is read at a start, and a disk may have damaged it since. Kafka leaves it to the reader to find
that out by the CRC; a batch's offset and length are not covered by it, and a reader that does not check serves wrong bytes.
Each range is checked once (0.03 ms per MB and 0.3 us per batch); what this process has written or recovered counts as checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ottla.protocol.records.batch import ATTRIBUTES_AT, CRC_AT, MAGIC_AT, PARTITION_LEADER_EPOCH_AT
from ottla.protocol.records.crc import crc32c
from ottla.storage.walk import DamagedLog

# Of one read: 2,000 small batches take about 1 ms of the loop. A read that meets more is answered with fewer bytes.
BATCHES_MAX = 2000


class ColdBytes:
    """`until`: bytes from there on were written by this process. One range below it is known to be right."""

    __slots__ = ("_from", "_to", "epoch_at", "until")

    def __init__(self, until: int) -> None:
        self.until = until
        # The leader epoch of an offset, -1 where it is not known: no CRC covers a batch's own.
        self.epoch_at: Callable[[int], int] | None = None
        self._from = self._to = 0

    def vouch(self, start: int, end: int) -> None:
        """[start, end) holds whole batches, and was found to be right."""
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
        """How much of [start, end) is right: up to the first damaged batch, and at most BATCHES_MAX. `batches` walks there.

        Raises:
            DamagedLog: the first batch is damaged already.
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
        self.vouch(start, position)
        return position
