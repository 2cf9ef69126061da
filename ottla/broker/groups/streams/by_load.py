"""A binary heap of names by their loads, in which equal loads keep the places that java.util.PriorityQueue gives them.

The assignor gives each task to the first name, so that which of several equals gets it depends on these places. `heapq` would order
equals by name; with Kafka's own order a group has the target that Kafka would give it, but for the order of Java's hash maps, in
which Kafka puts the names in. Ours are put in by name.
"""

from __future__ import annotations

from collections.abc import Iterable


class ByLoad:
    def __init__(self, names: Iterable[tuple[float, str]]) -> None:
        self._heap: list[tuple[float, str]] = []
        for load, name in names:
            self.push(load, name)

    def __bool__(self) -> bool:
        return bool(self._heap)

    def push(self, load: float, name: str) -> None:
        """A name goes up past larger loads only."""
        heap = self._heap
        at = len(heap)
        heap.append((load, name))
        while at and load < heap[(parent := (at - 1) // 2)][0]:
            heap[at], at = heap[parent], parent
        heap[at] = load, name

    def pop(self) -> str:
        """The last name takes the place of the first, and goes down past smaller loads only, on the left side if both are equal."""
        heap = self._heap
        first, last = heap[0], heap.pop()
        at, child, size = 0, 1, len(heap)
        while child < size:
            if child + 1 < size and heap[child + 1][0] < heap[child][0]:
                child += 1
            if last[0] <= heap[child][0]:
                break
            heap[at], at, child = heap[child], child, 2 * child + 1
        if heap:
            heap[at] = last
        return first[1]
