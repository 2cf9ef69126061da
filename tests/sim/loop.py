"""An asyncio event loop for many simulated processes, whose clock jumps to the next timer instead of waiting for it.

Every callback belongs to the process in whose context it was scheduled: its `Lane`. A lane that is paused gets no turns (SIGSTOP):
what becomes due meanwhile runs, in order, when it goes on. A lane that is closed gets none any more. The test itself, and
the kernels and cables of the simulated hosts, run in the lane `OUTSIDE`.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import inspect
import itertools
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tests.sim.disk import Killed
from tests.sim.threads import simulated_locks

T = TypeVar("T")
#: A whole run has about 50,000 callbacks.
TURNS_AT_ONCE_MAX = 5_000
log = logging.getLogger(__name__)


class Deadlock(Exception):
    """A run would wait for ever: no callback is ready, and no timer is set."""


class BusyLoop(Exception):
    """A task is busy without any time passing: on a real machine, one core would be at 100 %."""


class Lane:
    """The turns of one process."""

    __slots__ = ("_parked", "closed", "context", "name", "paused")

    def __init__(self, name: str) -> None:
        self.name = name
        self.paused = self.closed = False
        self._parked: list[Handle] = []
        self.context = contextvars.copy_context()
        self.context.run(LANE.set, self)

    def park(self, handle: Handle) -> None:
        self._parked.append(handle)

    def take_parked(self) -> list[Handle]:
        parked, self._parked = self._parked, []
        return parked


LANE: contextvars.ContextVar[Lane] = contextvars.ContextVar("LANE")
OUTSIDE = Lane("outside")


class Handle:
    """See asyncio.Handle and asyncio.TimerHandle."""

    __slots__ = ("_args", "_callback", "_cancelled", "_context", "_when", "lane")

    def __init__(
        self, callback: Callable[..., Any], args: Any, context: contextvars.Context | None, when: float = 0.0
    ) -> None:
        self._callback, self._args, self._when = callback, args, when
        self._context = contextvars.copy_context() if context is None else context
        self.lane = self._context.get(LANE, OUTSIDE)
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = self._args = None  # as asyncio does: nothing is kept alive

    def cancelled(self) -> bool:
        return self._cancelled

    def when(self) -> float:
        return self._when

    def __repr__(self) -> str:
        return f"{self._callback} of {self.lane.name}"

    def run(self) -> None:
        try:
            self._context.run(self._callback, *self._args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except Killed:
            pass  # its process is gone, so no caller is left
        except BaseException as failure:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, SimLoop)
            loop.callback_failed(self.lane, failure)


class SimLoop(asyncio.AbstractEventLoop):
    """Virtual seconds since the run began are `loop.time()`."""

    def __init__(self) -> None:
        self._now = 0.0
        self._ready: deque[Handle] = deque()
        self._timers: list[tuple[float, int, Handle]] = []
        self._sequence = itertools.count()
        self._stopping = self._running = self._closed = False
        #: Failures of callbacks, which are not reported anywhere else.
        self.on_failure: Callable[[Lane, BaseException], None] | None = None
        self.run_handle: Callable[[Handle], None] = Handle.run
        self.turns = 0
        self._turns_before = 0  # when the time last moved

    # -- Scheduling --------------------------------------------------------------------------------------------------

    def time(self) -> float:
        return self._now

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None) -> Handle:
        handle = Handle(callback, args, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        handle = Handle(callback, args, context, when)
        heapq.heappush(self._timers, (when, next(self._sequence), handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: contextvars.Context | None = None
    ) -> asyncio.Task[T]:
        return asyncio.Task(coro, loop=self, name=name, context=context)

    # -- Lanes -------------------------------------------------------------------------------------------------------

    def resume(self, lane: Lane) -> None:
        lane.paused = False
        self._ready.extend(lane.take_parked())

    # -- Running -----------------------------------------------------------------------------------------------------

    def run_until_complete(self, future: Any) -> Any:
        task = asyncio.ensure_future(future, loop=self)
        task.add_done_callback(lambda _: self.stop())
        self.run_forever()
        return task.result()

    def run_forever(self) -> None:
        self._stopping, self._running = False, True
        asyncio._set_running_loop(self)
        try:
            while not self._stopping:
                self._turn()
        finally:
            asyncio._set_running_loop(None)
            self._running = False

    def _turn(self) -> None:
        ready, timers = self._ready, self._timers
        if not ready:
            while timers and timers[0][2]._cancelled:
                heapq.heappop(timers)
            if not timers:
                raise Deadlock("nothing is ready and no timer is set")
            if timers[0][0] > self._now:
                self._now, self._turns_before = timers[0][0], self.turns
            elif self.turns - self._turns_before > TURNS_AT_ONCE_MAX:
                raise BusyLoop(f"{timers[0][2]} is ready again and again")
            while timers and timers[0][0] <= self._now:
                ready.append(heapq.heappop(timers)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled or handle.lane.closed:
                continue
            if handle.lane.paused:
                handle.lane.park(handle)
                continue
            self.turns += 1
            self.run_handle(handle)

    def stop(self) -> None:
        self._stopping = True

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True
        self._ready.clear()
        self._timers.clear()

    def get_debug(self) -> bool:
        return False

    def callback_failed(self, lane: Lane, failure: BaseException) -> None:
        if self.on_failure is not None:
            self.on_failure(lane, failure)
        else:
            log.error("a callback of %s failed", lane.name, exc_info=failure)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Log exceptions that were never retrieved, at DEBUG: the moment at which this is noticed depends on the garbage collector."""
        log.debug("%s", context.get("message"), exc_info=context.get("exception"))

    async def shutdown_asyncgens(self) -> None:
        return None


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs `main` to its end in virtual time; tasks it left behind are cancelled.

    Some of these never have a turn: what a cancelled task begins as it ends, as a node's stop does that closes its logs, and those of a
    lane that was closed or paused first. Their coroutines are closed, or the garbage collector would warn of them in another test.
    """
    loop = SimLoop()
    try:
        asyncio.set_event_loop(loop)
        with simulated_locks():
            return loop.run_until_complete(main)
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        for task in asyncio.all_tasks(loop):
            work = task.get_coro()
            if inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
                work.close()
        asyncio.set_event_loop(None)
        loop.close()
