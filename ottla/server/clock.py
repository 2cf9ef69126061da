"""Time. This is the only module that reads the clock, sets the timers of thousands of operations, and does work in turns of the
event loop.

Other modules get a `Clock`, which the simulator implements with virtual time. Long work is a generator (`protocol.work`); where
it yields, it continues in the next turn:

    run_in_turns     it is awaited, and has a budget of time for each turn; it also runs on workers what the work yields
    begin_in_turns   it has no task; the first slice runs at once, so that short work is done when the call returns

Some modules themselves continue in the next turn, because theirs is no work with one owner and an end:

    network/pauses.py, coordinator/turns.py   a budget that many owners share, and the queue of those that wait for it
    wakeups.py, state_persister.py (broker)   they collect the requests of one turn, and handle them together in the next
    replication/fetcher.py                    a response that fits into one turn, as most do, needs no generator
    network/tls_stream.py, and calls of a single function that must not run inside their caller

Nothing else runs between two slices of one turn. Between two turns anything may run, so the state that the work reads can
change.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator, Hashable
from heapq import heappop, heappush
from typing import Any, Protocol, TypeVar

from ottla.protocol.work import Work
from ottla.server.tasks import isolated

T = TypeVar("T")

#: The longest delay of an expiry. Kafka's wheel ticks every millisecond. The shortest waits of clients are librdkafka's
#: fetch.wait.max.ms of 100, compared with which 5 ms are short, and they save an idle node most of its wake-ups.
TICK_MS = 5


#: After all times.
NEVER_MS = 1 << 62


class TimerHandle(Protocol):
    """A timer that has been set."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Wall-clock time for timestamps, and monotonic time for timeouts and durations."""

    def wall_ms(self) -> int: ...
    def mono_ms(self) -> int: ...
    def mono_ns(self) -> int: ...
    def call_later(self, delay_ms: float, callback: Callable[[], object]) -> TimerHandle: ...


class SystemClock:
    """The machine's clocks and the event loop's timers."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # It is the builtin itself: every request calls it, and a method around it would take longer.
        self.mono_ns: Callable[[], int] = time.monotonic_ns

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def mono_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def call_later(self, delay_ms: float, callback: Callable[[], object]) -> TimerHandle:
        return self._loop.call_later(delay_ms / 1000, callback)


async def pause(clock: Clock, delay_ms: float) -> None:
    over = asyncio.Event()
    timer = clock.call_later(delay_ms, over.set)
    try:
        await over.wait()
    finally:
        timer.cancel()


class Expiring(Hashable, Protocol):
    """An entry of the wheel."""

    def expire(self) -> None: ...


class TimerWheel:
    """The timeouts of a node behind one timer of the clock.

    They are cheap to add and to remove; `remove` takes the slot that `add` returned.

    Most operations complete before their deadline: an acks=all produce with a 30 s timeout completes within a millisecond. So a
    removed entry leaves its slot at once, and does not stay until its expiry. Entries expire a little late, never early.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._slots: dict[int, dict[Expiring, None]] = {}
        self._order: list[int] = []  # heap of the used slots
        self._armed_slot = -1
        self._handle: TimerHandle | None = None

    def __len__(self) -> int:
        return sum(len(entries) for entries in self._slots.values())

    def add(self, entry: Expiring, delay_ms: int) -> int:
        """Schedule a call of `entry.expire()` after `delay_ms`."""
        slot = (self._clock.mono_ms() + delay_ms) // TICK_MS + 1
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
        """Remove the entry. If it has expired already, this has no effect."""
        entries = self._slots.get(slot)
        if entries is not None:
            entries.pop(entry, None)

    def close(self) -> None:
        """Remove all entries."""
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
            delay_ms = max(0, self._armed_slot * TICK_MS - self._clock.mono_ms())
            self._handle = self._clock.call_later(delay_ms, self._tick)

    def _tick(self) -> None:
        self._handle = None
        self._armed_slot = -1
        now_ms = self._clock.mono_ms()
        expired: list[Expiring] = []
        while self._order and self._order[0] * TICK_MS <= now_ms:
            expired.extend(self._slots.pop(heappop(self._order)))
        self._arm()
        for entry in expired:
            isolated(entry.expire)


class Waiting(Expiring, Protocol):
    """An operation that waits until it is done."""

    is_waiting: bool


class Deadline:
    """The time-out of operations of which one waits at a time. It stays in the wheel when one is done, because the next soon waits as long.

    So a wait costs a comparison, in place of an entry that is added and removed.
    """

    __slots__ = ("_clock", "_due_ms", "_operation", "_slot", "_slot_ms", "_wheel")

    def __init__(self, clock: Clock, wheel: TimerWheel) -> None:
        self._clock = clock
        self._wheel = wheel
        self._operation: Waiting | None = None
        self._due_ms = 0
        self._slot, self._slot_ms = -1, NEVER_MS

    def begin(self, operation: Waiting, due_ms: int) -> None:
        """Call `operation.expire()` at the time, if it waits still and no other wait has begun."""
        self._operation = operation
        self._due_ms = due_ms
        if due_ms < self._slot_ms:
            self.close()
            self._arm(due_ms - self._clock.mono_ms())

    def close(self) -> None:
        """Leave the wheel."""
        self._wheel.remove(self, self._slot)
        self._slot_ms = NEVER_MS

    def expire(self) -> None:
        """Expire the operation, as the wheel says, or wait for what is left of its time."""
        self._slot_ms = NEVER_MS
        operation = self._operation
        if operation is None or not operation.is_waiting:
            self._operation = None
            return
        left_ms = self._due_ms - self._clock.mono_ms()
        if left_ms > 0:
            self._arm(left_ms)
        else:
            operation.expire()

    def _arm(self, delay_ms: int) -> None:
        self._slot = self._wheel.add(self, max(0, delay_ms))
        self._slot_ms = self._due_ms


async def run_in_turns(
    clock: Clock,
    work: Generator[Any, Any, T],
    budget_ns: int = 0,
    do: Callable[[Any], Awaitable[object]] | None = None,
) -> T:
    """Run the work and return its result. Without a budget each slice has its own turn: the work limits its slices itself.

    `do` carries out what the work yields, and its result is sent back. An exception of `do` is thrown into the work, which may
    handle it.
    """
    turn_ends_ns = clock.mono_ns() + budget_ns
    answer: object = None
    failure: Exception | None = None
    while True:
        try:
            asked = work.send(answer) if failure is None else work.throw(failure)
        except StopIteration as end:
            result: T = end.value
            return result
        answer = failure = None
        if asked is not None:
            assert do is not None, f"nothing does {asked}"
            try:
                answer = await do(asked)
            except Exception as error:
                failure = error
        elif clock.mono_ns() >= turn_ends_ns:
            await pause(clock, 0)
            turn_ends_ns = clock.mono_ns() + budget_ns


def begin_in_turns(
    clock: Clock,
    work: Work[T],
    done: Callable[[T], object] | None = None,
    failed: Callable[[Exception], object] | None = None,
) -> None:
    """Run the first slice now, and each other one in its own turn. `done` gets the result in the turn of the last slice.

    An error of the first slice is raised here. `failed` gets the error of a later one; without `failed` the event loop logs it.
    """

    def next_turn() -> None:
        try:
            ended = _advance(work)
        except Exception as error:
            if failed is None:
                raise
            failed(error)
        else:
            go_on(ended)

    def go_on(ended: StopIteration | None) -> None:
        if ended is None:
            clock.call_later(0, next_turn)
        elif done is not None:
            done(ended.value)

    go_on(_advance(work))


def _advance(work: Work[T]) -> StopIteration | None:
    """Run one slice. Return the end of the work with its result, or None if there are more slices."""
    try:
        next(work)
    except StopIteration as end:
        return end
    return None
