"""Timers of one shard, by key. They are soft state: lost with the shard and rebuilt when it is loaded.

A heartbeat moves its member's deadline on every request, so moving one later is a dictionary write: the heap keeps the
older, earlier entry, and looks again when that comes due. A sweep is work on all keys of a shard, a bounded number of them in
each turn, which goes on by a timer. No clock and no event loop in here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator
from heapq import heappop, heappush
from typing import TypeAlias, TypeVar

from ottla.broker.coordinator.outcome import CoordinatorRecord, Outcome, Unasked

# Timers that moved earlier or were cancelled leave stale heap entries. If there are more than this, and they are half the heap, it is rebuilt.
DEAD_ENTRIES_MAX = 64


class _Timer:
    __slots__ = ("callback", "deadline_ms", "queued_ms")

    def __init__(self, deadline_ms: int, callback: Callable[[], Unasked]) -> None:
        self.deadline_ms = deadline_ms
        self.callback = callback
        self.queued_ms = deadline_ms


class Timers:
    """The timers of a shard. `now_ms` is monotonic; `changed` is called when the earliest wake-up has become earlier."""

    def __init__(self, now_ms: Callable[[], int], changed: Callable[[int], None]) -> None:
        self._now_ms = now_ms
        self._changed = changed
        self._timers: dict[Hashable, _Timer] = {}
        self._heap: list[tuple[int, int, Hashable]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._timers)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._timers

    def schedule(self, key: Hashable, delay_ms: int, callback: Callable[[], Unasked]) -> None:
        """Run `callback` after `delay_ms`, unless the key is scheduled again or cancelled before."""
        deadline_ms = self._now_ms() + delay_ms
        timer = self._timers.get(key)
        if timer is None:
            self._timers[key] = _Timer(deadline_ms, callback)
            self._push(deadline_ms, key)
            return
        timer.callback = callback
        timer.deadline_ms = deadline_ms
        if deadline_ms < timer.queued_ms:
            timer.queued_ms = deadline_ms
            self._push(deadline_ms, key)

    def postpone(self, key: Hashable, delay_ms: int) -> bool:
        """Move an existing timer, on the hot path of heartbeats and commits. Return False if it does not exist."""
        timer = self._timers.get(key)
        if timer is None:
            return False
        deadline_ms = self._now_ms() + delay_ms
        timer.deadline_ms = deadline_ms
        if deadline_ms < timer.queued_ms:
            timer.queued_ms = deadline_ms
            self._push(deadline_ms, key)
        return True

    def cancel(self, key: Hashable) -> None:
        """Forget a timer, if there is one."""
        self._timers.pop(key, None)
        if len(self._heap) > DEAD_ENTRIES_MAX and len(self._heap) > 2 * len(self._timers):
            self._rebuild()

    def clear(self) -> None:
        """Forget all."""
        self._timers.clear()
        self._heap.clear()

    def next_wake_up_ms(self) -> int | None:
        """Return the time of the next call of `pop_due`, which is never later than the earliest deadline."""
        return self._heap[0][0] if self._heap else None

    def pop_due(self) -> tuple[Hashable, Callable[[], Unasked]] | None:
        """Remove a due timer and return its key and callback; None if no timer is due."""
        now_ms = self._now_ms()
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            queued_ms, _, key = heappop(heap)
            timer = self._timers.get(key)
            if timer is None or timer.queued_ms != queued_ms:
                continue
            if timer.deadline_ms <= now_ms:
                del self._timers[key]
                return key, timer.callback
            timer.queued_ms = timer.deadline_ms
            self._push(timer.deadline_ms, key)
        return None

    def _push(self, deadline_ms: int, key: Hashable) -> None:
        self._sequence += 1
        heappush(self._heap, (deadline_ms, self._sequence, key))
        if self._heap[0][2] is key:
            self._changed(deadline_ms)

    def _rebuild(self) -> None:
        self._heap = []
        for key, timer in self._timers.items():
            timer.queued_ms = timer.deadline_ms
            self._sequence += 1
            heappush(self._heap, (timer.deadline_ms, self._sequence, key))


log = logging.getLogger(__name__)

T = TypeVar("T")
Look: TypeAlias = Callable[[T, list[CoordinatorRecord]], int]

# Looking at one offset or one transaction takes about 1 us.
LOOKS_PER_TURN = 2_000
# The least delay: a timer with delay 0 would run in the same turn.
NEXT_TURN_MS = 1


def sweep_soon(timers: Timers, key: Hashable, items: Callable[[], Iterable[T]], look: Look[T]) -> Unasked:
    """Begin a sweep by a timer: an event may concern all shards of a broker, and their timers share one budget in each turn."""
    timers.schedule(key, 0, lambda: sweep(timers, key, iter(items()), look))
    return Outcome()


def sweep(timers: Timers, key: Hashable, left: Iterator[T], look: Look[T]) -> Unasked:
    """Decide on a bounded number of the remaining items; a timer of that key continues with the rest.

    `look(item, records)` adds the records of its decision, and returns how many things it has examined. Items may have been
    removed since `left` was made, because other requests are served in between. An item that fails is skipped and logged.
    """
    records: list[CoordinatorRecord] = []
    looked = 0
    for item in left:
        try:
            looked += look(item, records)
        except Exception:
            # Any error, because one broken item must not keep the items after it from their expiration.
            log.exception("%s: %s failed", key, item)
            looked += 1
        if looked >= LOOKS_PER_TURN:
            timers.schedule(key, NEXT_TURN_MS, lambda: sweep(timers, key, left, look))
            break
    return Outcome(records, atomic=False)
