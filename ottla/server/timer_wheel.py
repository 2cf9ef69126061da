"""Timer wheel: the deadlines of thousands of delayed operations behind one timer of the clock. Entries are cheap to add and to remove.

Most operations complete before their deadline: an acks=all produce with a 30 s timeout completes within a millisecond. So a
removed entry leaves its slot at once, and does not stay until its expiry. Entries expire a little late, never early.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heappop, heappush
from typing import Protocol

from ottla.server.clock import Clock, TimerHandle
from ottla.server.isolation import isolated

#: The longest delay of an expiry. Kafka's wheel ticks every millisecond. The shortest waits of clients are librdkafka's
#: fetch.wait.max.ms of 100, compared with which 5 ms are short, and they save an idle node most of its wake-ups.
TICK_MS = 5


class Expiring(Hashable, Protocol):
    """An entry of the wheel."""

    def expire(self) -> None: ...


class TimerWheel:
    """Time-outs of a node; `add` returns a slot, which is an argument of `remove`."""

    def __init__(self, clock: Clock, tick_ms: int = TICK_MS) -> None:
        self._clock = clock
        self._tick_ms = tick_ms
        self._slots: dict[int, dict[Expiring, None]] = {}
        self._order: list[int] = []  # heap of the used slots
        self._armed_slot = -1
        self._handle: TimerHandle | None = None

    def __len__(self) -> int:
        return sum(len(entries) for entries in self._slots.values())

    def add(self, entry: Expiring, delay_ms: int) -> int:
        """Schedules a call of `entry.expire()` after `delay_ms`."""
        slot = (self._clock.mono_ms() + delay_ms) // self._tick_ms + 1
        entries = self._slots.get(slot)
        if entries is not None:
            entries[entry] = None
            return slot
        self._slots[slot] = {entry: None}
        heappush(self._order, slot)
        if self._armed_slot < 0 or slot < self._armed_slot:
            self._arm()
        return slot

    def remove(self, entry: Expiring, slot: int) -> None:
        """Removes the entry; without effect if it has expired already."""
        entries = self._slots.get(slot)
        if entries is not None:
            entries.pop(entry, None)

    def close(self) -> None:
        """Removes all entries."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._armed_slot = -1
        self._slots.clear()
        self._order.clear()

    def _arm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._armed_slot = -1
        if self._order:
            self._armed_slot = self._order[0]
            delay_ms = max(0, self._armed_slot * self._tick_ms - self._clock.mono_ms())
            self._handle = self._clock.call_later(delay_ms, self._tick)

    def _tick(self) -> None:
        self._handle = None
        self._armed_slot = -1
        now_ms = self._clock.mono_ms()
        expired: list[Expiring] = []
        while self._order and self._order[0] * self._tick_ms <= now_ms:
            expired.extend(self._slots.pop(heappop(self._order)))
        self._arm()
        for entry in expired:
            isolated(entry.expire)
