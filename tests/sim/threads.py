"""Threads that the simulation switches: a worker's function stops before each of its file system calls, and goes on later.

Only one thread runs at any time: the one that has the baton. The event loop gives it to a thread (`SimThread.resume`) and has it
back when the thread stops or ends, so that a seed always gives the same run. A thread stops before a call of `Files`; it goes on
when the loop's task that waits for it says so, or in the middle of the loop's own turn, before a call of the loop's.

`SimLock` takes the place of `threading.Lock` in what workers and the loop share: a thread that waits for one stops, and when
the loop has to wait, the thread that holds it goes on until it lets go.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

import ottla.storage.directories.log_checkpoints
import ottla.storage.directories.open_logs
import ottla.storage.epochs
import ottla.storage.log.durability
import ottla.storage.log.partition_dir
import ottla.storage.segment.segment_indexes

P = ParamSpec("P")
T = TypeVar("T")

SHARED: tuple[ModuleType, ...] = (
    ottla.storage.log.durability,
    ottla.storage.epochs,
    ottla.storage.log.partition_dir,
    ottla.storage.directories.log_checkpoints,
    ottla.storage.directories.open_logs,
    ottla.storage.segment.segment_indexes,
)

#: How often a thread stops before one of its calls, and how often a thread goes on at a call of the loop.
STOPPED = 0.5
SWITCHED = 0.3

#: The thread that has the baton; None is the event loop.
_current: SimThread | None = None


def current() -> SimThread | None:
    """Return the running thread, None for the event loop."""
    return _current


class SimThread:
    """A function on a thread of its own, which runs only while `resume` waits for it."""

    def __init__(self, threads: Threads, function: Callable[[], object]) -> None:
        self.threads = threads
        self.is_over = self._runs = False
        self.waits_for: SimLock | None = None
        self._loop = asyncio.get_running_loop()
        self._function = function
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._result: object = None
        self._error: BaseException | None = None
        context = copy_context()
        self._thread = threading.Thread(target=lambda: context.run(self._run), daemon=True)
        self._thread.start()

    def resume(self) -> bool:
        """Let the thread run until it stops before a call, or ends. Return True if it has ended."""
        global _current
        if not self.is_over:
            assert not self._runs, "it waits for another thread"
            before, _current = _current, self
            self._runs = True
            self._go.release()
            self._back.acquire()
            self._runs = False
            _current = before
        return self.is_over

    def stop(self) -> None:
        """Gives the baton back, on the thread itself."""
        self._back.release()
        self._go.acquire()

    def result(self) -> Any:
        """Return the function's result or raise its error, once.

        A traceback that is kept would hold views of mapped files until a garbage collection.
        """
        self._thread.join()
        error, result = self._error, self._result
        self._error = self._result = None
        try:
            if error is not None:
                raise error
            return result
        finally:
            del error

    def _run(self) -> None:
        self._go.acquire()
        asyncio._set_running_loop(self._loop)  # a fault that strikes in a call closes connections and cancels timers
        try:
            self._result = self._function()
        except BaseException as error:
            self._error = error
        self.is_over = True
        self._back.release()


class Threads:
    """The threads of one host's processes that have stopped in the middle of their work."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._stopped: list[SimThread] = []

    def begin(self, function: Callable[[], object]) -> SimThread:
        thread = SimThread(self, function)
        self._stopped.append(thread)
        return thread

    def end(self, thread: SimThread) -> None:
        """Let the thread run to its end, because its caller no longer waits."""
        while not thread.resume():
            pass
        self._stopped.remove(thread)
        with suppress(BaseException):
            thread.result()  # dropped, unless its caller has it

    def switch(self) -> None:
        """Switch threads; each file system call of the host's processes calls this first."""
        if _current is not None:
            if self._rng.random() < STOPPED:
                _current.stop()
        elif self._stopped and self._rng.random() < SWITCHED:
            self._rng.choice(self._stopped).resume()


def before_each(call: Callable[P, T], threads_of: Callable[[Any], Threads | None]) -> Callable[P, T]:
    """Return the same call, but threads may be switched before it."""

    def switching(*args: P.args, **kwargs: P.kwargs) -> T:
        threads = threads_of(args[0])
        if threads is not None:
            threads.switch()
        return call(*args, **kwargs)

    return switching


class SimLock:
    """A lock for the simulated threads, and an ordinary lock for all others."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: SimThread | None = None

    def __enter__(self) -> bool:
        while not self._lock.acquire(blocking=False):
            if _current is not None:
                _current.waits_for = self
            ahead = self._thread_ahead()
            if ahead is not None:
                ahead.resume()
            elif _current is not None:
                _current.stop()  # the loop has what it waits for
            else:
                self._lock.acquire()
                break
        if _current is not None:
            _current.waits_for = None
        self._owner = _current
        return True

    def _thread_ahead(self) -> SimThread | None:
        """Return the thread that has to go on first: the one with this lock, or the one with the lock for which that thread
        waits.
        """
        owner = self._owner
        while owner is not None and (lock := owner.waits_for) is not None and lock._lock.locked():
            assert lock._owner is not _current, "two threads wait for each other's locks"
            owner = lock._owner
        return owner

    def __exit__(self, *exc: object) -> None:
        self._owner = None
        self._lock.release()


@contextmanager
def simulated_locks() -> Iterator[None]:
    """Objects that are created in this block have locks of the simulation."""
    try:
        for module in SHARED:
            vars(module)["Lock"] = SimLock
        yield
    finally:
        for module in SHARED:
            vars(module)["Lock"] = threading.Lock
