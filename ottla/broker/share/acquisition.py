"""The records that one fetch of a member acquires, from the record batches that were read for it (KIP-932)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from ottla.broker.share.in_flight import Run


class Span(NamedTuple):
    """Offsets, both included: a record batch of the log, or a part of one."""

    first: int
    last: int


class Acquired(NamedTuple):
    first_offset: int
    last_offset: int
    delivery_count: int


class Acquisition:
    """The records that one fetch acquires: how many it may still take, and those that it has."""

    __slots__ = ("_bases", "batches", "count", "is_full", "limit", "runs", "strict")

    def __init__(self, batches: Sequence[Span], limit: int, *, strict: bool) -> None:
        self.batches = batches
        self.limit = limit
        self.strict = strict
        self.runs: list[Run] = []
        self.count = 0
        self.is_full = False
        self._bases: list[int] = []

    def last_from(self, first: int, last: int) -> int:
        """The last offset to take of `first` to `last`."""
        left = self.limit - self.count
        if last - first + 1 <= left:
            return last
        cut = first + left - 1
        if self.strict:
            return cut
        if not self._bases:
            self._bases = [batch.last for batch in self.batches]
        index = bisect_left(self._bases, cut)
        return min(last, max(cut, self._bases[index])) if index < len(self._bases) else last

    def add(self, runs: list[Run]) -> None:
        self.runs += runs
        self.count += sum(run.size for run in runs)
        if self.count >= self.limit:
            self.is_full = True

    def acquired(self) -> list[Acquired]:
        """Parts of one batch that follow each other, and were delivered as often, are one element."""
        acquired: list[Acquired] = []
        before: Run | None = None
        for run in self.runs:
            if before and (before.last + 1, before.count, before.batch) == (run.first, run.count, run.batch):
                acquired[-1] = acquired[-1]._replace(last_offset=run.last)
            else:
                acquired.append(Acquired(run.first, run.last, run.count))
            before = run
        return acquired
