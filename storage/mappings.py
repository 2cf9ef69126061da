"""Bounds how many segments are mapped at once: 10,000 idle partitions must not use up the kernel's map count (65,530).

Second chance: the oldest mapping goes first, unless its segment was used since it was last looked at. A mapping that
readers still hold views of ends with the last of them.
"""

from __future__ import annotations

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
        """`segment` has just been mapped; others are unmapped to stay within the limit."""
        self._open[id(segment)] = segment
        segment.recently_used = True
        while len(self._open) > self.limit:
            key, oldest = self._open.popitem(last=False)
            if oldest.recently_used and oldest is not segment:
                oldest.recently_used = False
                self._open[key] = oldest
            elif oldest is segment:
                self._open[key] = oldest  # it comes round again; all others had their second chance by then
            else:
                oldest.unmap()

    def shrink(self) -> None:
        """There is no address space for another mapping: half of them go, the oldest first."""
        for _ in range(max(len(self._open) // 2, 1)):
            if self._open:
                self._open.popitem(last=False)[1].unmap()

    def closed(self, segment: Mapped) -> None:
        self._open.pop(id(segment), None)
