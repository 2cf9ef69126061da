"""Workers for tests that decide themselves when a call runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from ottla.server.workers import Priority


class OneQueue:
    """One queue for all disks, without priorities: `on_disk` is the `run` of the class that inherits this."""

    run: Callable[..., Awaitable[Any]]

    async def on_disk(self, directory: str, priority: Priority, function: Callable[..., Any], *args: object) -> Any:
        return await self.run(function, *args)
