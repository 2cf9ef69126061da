"""Keeping what runs: the tasks of a node, and the order in which its parts start and stop.

This is the one place that makes tasks. A bare create_task would lose its exceptions, and its task at a garbage
collection; here every task has a name, and a failure is logged at once and given to `on_failure`. The parts without which a
node would be a zombie, the Raft replica and the broker's lifecycle, catch their own failures and end the node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

log = logging.getLogger(__name__)

#: A part that does not stop within this long is left behind: controlled shutdown has its own, shorter limits.
STOP_TIMEOUT_S = 30.0


class Tasks:
    """All tasks of one node."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_failure: Callable[[BaseException], None] | None = None
    ) -> None:
        self._loop = loop
        self._tasks: dict[asyncio.Task[Any], None] = {}  # in order, so that a simulated run can be repeated
        self.on_failure = on_failure

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run the coroutine until it ends or the node stops."""
        task = self._loop.create_task(coroutine, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            return
        failure = task.exception()
        if failure is not None:
            log.error("Task %s failed", task.get_name(), exc_info=failure)
            if self.on_failure is not None:
                self.on_failure(failure)

    async def close(self) -> None:
        """Cancel what still runs, and wait for it."""
        while self._tasks:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            _, left = await asyncio.wait(tasks, timeout=STOP_TIMEOUT_S)
            if left:
                log.error("Tasks that ignore being cancelled: %s", ", ".join(task.get_name() for task in left))
                return


class Part(Protocol):
    """Something with a life: it is started once and stopped once."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...


class Parts:
    """Starts parts in the order they were added, and stops those that were started in the opposite order."""

    def __init__(self) -> None:
        self._parts: list[tuple[str, Part]] = []
        self._started: list[tuple[str, Part]] = []

    def add(self, name: str, part: Part) -> None:
        self._parts.append((name, part))

    async def start(self) -> None:
        """When one part cannot start, those before it are stopped and its error is raised."""
        for name, part in self._parts:
            try:
                await part.start()
            except BaseException:
                log.error("Could not start %s", name)
                await self.stop()
                raise
            self._started.append((name, part))

    async def stop(self) -> None:
        """One part's failure to stop does not keep the others running."""
        while self._started:
            name, part = self._started.pop()
            try:
                await asyncio.wait_for(part.stop(), STOP_TIMEOUT_S)
            except TimeoutError:
                log.error("%s did not stop within %d s", name, STOP_TIMEOUT_S)
            except Exception:
                log.exception("Could not stop %s cleanly", name)
