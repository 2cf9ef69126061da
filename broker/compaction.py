"""Drives the log cleaner beside the clients: a slice of a pass, then a pause for whoever waits, then the next slice.

What is compacted, and how, is `storage/cleaner.py`. Slices are Python work, so they take the loop's time; the pause after
each leaves the clients three quarters of it, whatever the slice cost.
"""

from __future__ import annotations

import asyncio
import logging

from broker.configs import BrokerConfigs
from server.world import World
from storage.cleaner import Cleaner
from storage.errors import StorageFailure
from storage.logs import Logs

log = logging.getLogger(__name__)

#: The pause after a slice, in times of what the slice took.
PAUSE_FACTOR = 3
#: The least pause: a slice may be shorter than the clock's grain.
PAUSE_MS_MIN = 1.0


class Compaction:
    """See the module."""

    def __init__(self, world: World, configs: BrokerConfigs, logs: Logs) -> None:
        self._world = world
        self._backoff_ms: int = configs["log.cleaner.backoff.ms"]
        self._enabled: bool = configs["log.cleaner.enable"]
        self._cleaner = Cleaner(logs)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        if self._enabled:
            self._cleaner.load()
            self._task = self._world.spawn(self._run(), "log cleaner")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            try:
                worked = await self._pass()
            except StorageFailure as failure:
                log.error("compaction: %s", failure)
                worked = False
            if not worked:
                await asyncio.sleep(self._backoff_ms / 1000)

    async def _pass(self) -> bool:
        """One pass over the log that needs it most; False when none does."""
        clock, worked = self._world.clock, False
        begin_ns = clock.mono_ns()
        for _ in self._cleaner.run(clock.wall_ms()):
            worked = True
            took_ms = (clock.mono_ns() - begin_ns) / 1e6
            await asyncio.sleep(max(PAUSE_MS_MIN, took_ms * PAUSE_FACTOR) / 1000)
            begin_ns = clock.mono_ns()
        return worked
