"""The mapped files of a node, whose number is limited: 10,000 idle partitions must not exceed the kernel's map count (65,530)."""

from __future__ import annotations

import sys
from collections import OrderedDict
from typing import Protocol

MAPPED_SEGMENTS_MAX = 8192


class Mapped(Protocol):
    """The file of a segment (`segment_file.SegmentFile`)."""

    recently_used: bool

    def unmap(self) -> None: ...


class Mappings:
    """The mapped files. Beyond the limit the oldest is unmapped, unless it was used since the last check (second chance).

    If readers hold views of a mapping, it ends with the last of these.
    """

    __slots__ = ("_open", "limit")

    def __init__(self, limit: int = MAPPED_SEGMENTS_MAX) -> None:
        assert limit >= 1
        self.limit = limit
        self._open: OrderedDict[int, Mapped] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, file: Mapped) -> None:
        """Registers a newly mapped file; others are unmapped to stay within the limit."""
        self._open[id(file)] = file
        file.recently_used = True
        while len(self._open) > self.limit:
            key, oldest = self._open.popitem(last=False)
            if oldest.recently_used and oldest is not file:
                oldest.recently_used = False
                self._open[key] = oldest
            elif oldest is file:
                self._open[key] = oldest  # it is checked again after all others have had their second chance
            else:
                oldest.unmap()

    def shrink(self) -> None:
        """Unmaps half of the files, the oldest first, because there is no address space for another mapping."""
        for _ in range(max(len(self._open) // 2, 1)):
            if self._open:
                self._open.popitem(last=False)[1].unmap()

    def lift_limit(self) -> None:
        """From now on no file is unmapped for another one's sake."""
        self.limit = sys.maxsize

    def closed(self, file: Mapped) -> None:
        self._open.pop(id(file), None)
