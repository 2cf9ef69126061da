"""The tasks of a node, and its callbacks.

No other module creates tasks. With a bare create_task, exceptions would be lost, and the garbage collector might remove the
task. Here every task has a name, and an exception is logged at once and passed to `on_failure`. The components without which a
node cannot work, the Raft replica and the broker's lifecycle, catch their own exceptions and end the node.

Callbacks that one caller runs for many owners (waiters of a partition, entries of a timer wheel, listeners) are isolated in a
similar way. An exception in one of them would end the caller's loop, and drop the callbacks of all other owners, whose
registrations are already removed: they would wait until their timeout, or for ever. Here the exception is logged with its
traceback and the loop continues. It is still a bug: the simulator fails a run in which a node logs one (invariant 0).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Never, Protocol, TypeVar, TypeVarTuple

log = logging.getLogger(__name__)

#: A task that ignores its cancellation for this long is abandoned.
STOP_TIMEOUT_S = 30.0

T = TypeVar("T")


class Spawn(Protocol):
    """The signature of `Tasks.spawn`."""

    def __call__(self, coroutine: Coroutine[object, Never, T], name: str) -> asyncio.Task[T]: ...


class Tasks:
    """All tasks of one node."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_failure: Callable[[BaseException], None] | None = None
    ) -> None:
        self._loop = loop
        self._tasks: dict[asyncio.Task[object], None] = {}  # in order, so that simulations are reproducible
        self.on_failure = on_failure

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, coroutine: Coroutine[object, Never, T], name: str) -> asyncio.Task[T]:
        """Run the coroutine until it ends or the node stops."""
        task = self._loop.create_task(coroutine, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[object]) -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            return
        failure = task.exception()
        if failure is not None:
            log.error("Task %s failed", task.get_name(), exc_info=failure)
            if self.on_failure is not None:
                self.on_failure(failure)

    async def close(self) -> None:
        """Cancel running tasks, and wait for their end."""
        while self._tasks:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            _, left = await asyncio.wait(tasks, timeout=STOP_TIMEOUT_S)
            if left:
                log.error("Tasks that ignore being cancelled: %s", ", ".join(task.get_name() for task in left))
                return


Arguments = TypeVarTuple("Arguments")


def isolated(callback: Callable[[*Arguments], object], *arguments: *Arguments) -> None:
    """Call the callback and log its exception. Without an exception it takes only the time of the call."""
    try:
        callback(*arguments)
    except Exception:
        log.exception("A callback failed: %r%r", callback, arguments)
