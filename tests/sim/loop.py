"""An asyncio event loop whose clock jumps to the next timer instead of waiting for it."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Deadlock(Exception):
    """Nothing is ready, no timer is set: the run would wait for ever."""


class _NoSockets(selectors.BaseSelector):
    """A selector that watches nothing; being asked to wait is what moves the time."""

    def __init__(self, advance: Callable[[float | None], None]) -> None:
        self._advance = advance
        self._map: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, fileobj if isinstance(fileobj, int) else fileobj.fileno(), events, data)
        self._map[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._map.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout > 0:
            self._advance(timeout)
        return []

    def get_map(self) -> Any:
        return self._map


class SimLoop(asyncio.SelectorEventLoop):
    """Virtual seconds since the run began are `loop.time()`."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_NoSockets(self._advance))

    def time(self) -> float:
        return self._now

    def _advance(self, timeout: float | None) -> None:
        if timeout is None:
            raise Deadlock("nothing is ready and no timer is set")
        self._now += timeout


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs `main` to its end in virtual time; tasks it left behind are cancelled."""
    loop = SimLoop()
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(main)
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        asyncio.set_event_loop(None)
        loop.close()
