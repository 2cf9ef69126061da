"""Batches of a share partition's state, combined with newer ones.

For each offset the batch with the highest delivery count counts, and of those the one with the highest delivery state: a count
never falls, and of one count the terminal states are the highest numbers (2 acknowledged, 4 archived). So the order in which
updates arrive does not matter. The result is sorted, does not overlap, and neighbours differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import pairwise

from ottla.broker.share.share_state import UNINITIALIZED_START_OFFSET, StateBatch


def combine(so_far: Sequence[StateBatch], new: Sequence[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """The records before `start_offset` are over; with -1 for it, none are. `so_far` is a result of this function, or empty."""
    pruned = list(so_far if start_offset == UNINITIALIZED_START_OFFSET else _from(so_far, start_offset))
    if not new:
        return tuple(pruned)
    pruned += new if start_offset == UNINITIALIZED_START_OFFSET else _from(new, start_offset)
    return _highest(sorted(pruned))


def _from(batches: Sequence[StateBatch], start_offset: int) -> list[StateBatch]:
    return [
        batch if batch.first_offset >= start_offset else batch._replace(first_offset=start_offset)
        for batch in batches
        if batch.last_offset >= start_offset
    ]


def _highest(batches: list[StateBatch]) -> tuple[StateBatch, ...]:
    """Go over all offsets at which a batch begins or ends, with the batches that are open there in a heap."""
    bounds = sorted({offset for batch in batches for offset in (batch.first_offset, batch.last_offset + 1)})
    runs: list[StateBatch] = []
    open_batches: list[tuple[int, int, int]] = []  # -(delivery count), -(delivery state), last offset
    beginning = 0
    for first, end in pairwise(bounds):
        while beginning < len(batches) and batches[beginning].first_offset == first:
            batch = batches[beginning]
            heappush(open_batches, (-batch.delivery_count, -batch.delivery_state, batch.last_offset))
            beginning += 1
        while open_batches and open_batches[0][2] < first:
            heappop(open_batches)
        if not open_batches:
            continue
        count, state, _ = open_batches[0]
        run = StateBatch(first, end - 1, -state, -count)
        if runs and runs[-1].last_offset + 1 == first and runs[-1][2:] == run[2:]:
            run = runs.pop()._replace(last_offset=end - 1)
        runs.append(run)
    return tuple(runs)
