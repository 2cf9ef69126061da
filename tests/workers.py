"""Workers for tests that decide themselves when a call runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.server.disk_queue import Priority


class OneQueue:
    """`on_disk` is `run`: one queue for all disks, without priorities."""

    async def run(self, function: Callable[..., Any], *args: object) -> Any:
        raise NotImplementedError

    async def on_disk(self, directory: str, priority: Priority, function: Callable[..., Any], *args: object) -> Any:
        return await self.run(function, *args)
