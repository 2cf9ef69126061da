"""Limit of the number of mapped segments: 10,000 idle partitions must not exceed the kernel's map count (65,530).

The replacement policy is second chance: the oldest mapping is closed, unless its segment was used since the last check. If
readers hold views of a mapping, it ends with the last of these.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from typing import Protocol

MAPPED_SEGMENTS_MAX = 8192


class Mapped(Protocol):
    recently_used: bool

    def unmap(self) -> None: ...


class Mappings:
    __slots__ = ("_open", "limit")

    def __init__(self, limit: int = MAPPED_SEGMENTS_MAX) -> None:
        assert limit >= 1
        self.limit = limit
        self._open: OrderedDict[int, Mapped] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, segment: Mapped) -> None:
        """Registers a newly mapped segment; others are unmapped to stay within the limit."""
        self._open[id(segment)] = segment
        segment.recently_used = True
        while len(self._open) > self.limit:
            key, oldest = self._open.popitem(last=False)
            if oldest.recently_used and oldest is not segment:
                oldest.recently_used = False
                self._open[key] = oldest
            elif oldest is segment:
                self._open[key] = oldest  # it is checked again after all others have had their second chance
            else:
                oldest.unmap()

    def shrink(self) -> None:
        """Unmaps half of the segments, the oldest first, because there is no address space for another mapping."""
        for _ in range(max(len(self._open) // 2, 1)):
            if self._open:
                self._open.popitem(last=False)[1].unmap()

    def lift_limit(self) -> None:
        """From now on no segment is unmapped for another one's sake."""
        self.limit = sys.maxsize

    def closed(self, segment: Mapped) -> None:
        self._open.pop(id(segment), None)
