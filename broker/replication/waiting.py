"""Requests that wait: produce for the high watermark, fetch for bytes, and the timer wheel that ends both.

A waiting request is an entry in the ordered list of each partition it waits for and in one slot of the wheel; it is not a
task, a future or a loop timer. This file knows no partitions: `replication/partition.py` owns the lists and calls in here.

The wheel keeps entries by deadline slot in dicts, so that the usual case, a wait that ends before its deadline, takes the
entry out at once: acks=all with a 30 s timeout at 50 k requests/s must not keep 1.5 million dead entries until they expire.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Protocol

from server.clock import Clock

#: A wait may end up to this much late. Kafka's purgatory wheel ticks every 1 ms; fetch.max.wait.ms is 500 by default, and
#: librdkafka's 100: 5 ms are within both by a wide margin and quarter the wake-ups of an idle node with many consumers.
TICK_MS = 5


class Expiring(Protocol):
    """An entry of the wheel."""

    def expire(self) -> None: ...


class TimerWheel:
    """Deadlines of many entries behind at most one timer of the clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._slots: dict[int, dict[Expiring, None]] = {}
        self._order: list[int] = []
        self._armed_slot = -1
        self._handle: object | None = None

    def add(self, entry: Expiring, delay_ms: int) -> int:
        """The returned slot is what `remove` needs."""
        slot = (self._clock.mono_ms() + delay_ms) // TICK_MS + 1
        entries = self._slots.get(slot)
        if entries is None:
            self._slots[slot] = {entry: None}
            heapq.heappush(self._order, slot)
            if self._armed_slot < 0 or slot < self._armed_slot:
                self._arm()
        else:
            entries[entry] = None
        return slot

    def remove(self, entry: Expiring, slot: int) -> None:
        entries = self._slots.get(slot)
        if entries is not None:
            entries.pop(entry, None)

    def __len__(self) -> int:
        return sum(len(entries) for entries in self._slots.values())

    def _arm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()  # type: ignore[attr-defined]
            self._handle = None
        self._armed_slot = -1
        if self._order:
            self._armed_slot = self._order[0]
            delay_ms = max(0, self._armed_slot * TICK_MS - self._clock.mono_ms())
            self._handle = self._clock.call_later(delay_ms, self._tick)

    def _tick(self) -> None:
        self._handle = None
        self._armed_slot = -1
        now_ms = self._clock.mono_ms()
        expired: list[Expiring] = []
        while self._order and self._order[0] * TICK_MS <= now_ms:
            expired.extend(self._slots.pop(heapq.heappop(self._order)))
        self._arm()
        for entry in expired:
            entry.expire()

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()  # type: ignore[attr-defined]
            self._handle = None
        self._slots.clear()
        self._order.clear()


class Wakeups:
    """Coalesces wake-ups of one turn of the loop.

    A consumer that long-polls a busy partition would otherwise be answered once per appended record, though several
    produce requests are usually handled in the same turn: they are answered together, once, just after it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pending: dict[Callable[[], None], None] = {}

    def schedule(self, wake: Callable[[], None]) -> None:
        if not self._pending:
            self._clock.call_later(0, self._run)
        self._pending[wake] = None

    def _run(self) -> None:
        pending, self._pending = self._pending, {}
        for wake in pending:
            wake()
