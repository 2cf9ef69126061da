"""Places that several parties share. Each party has its own queue, and the parties get the free places in turns."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

from ottla.registry.errors import RegistryError

#: At most this many requests of one party may wait; a further one is rejected.
WAITING_MAX = 100


class Turns:
    """The places. Each party uses at most one at a time."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._using: set[Hashable] = set()
        # The parties in the order in which they get the next free place.
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def turn(self, party: Hashable) -> AsyncIterator[None]:
        """Wait for a place, and keep it during the block.

        Raises:
            RegistryError: too many requests of the party wait already.
        """
        if self._free and party not in self._using and party not in self._waiting:
            self._take(party)
        else:
            await self._wait(party)
        try:
            yield
        finally:
            self._using.discard(party)
            self._free += 1
            self._next()

    def _take(self, party: Hashable) -> None:
        self._free -= 1
        self._using.add(party)

    async def _wait(self, party: Hashable) -> None:
        queue = self._waiting.setdefault(party, deque())
        if len(queue) >= WAITING_MAX:
            raise RegistryError("busy")
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():  # it got the place at the same moment
                self._using.discard(party)
                self._free += 1
                self._next()
            elif place in queue:
                queue.remove(place)
                if not queue:
                    self._waiting.pop(party, None)
            raise

    def _next(self) -> None:
        """Give the free places to the parties that have waited longest since their last turn."""
        for party in list(self._waiting):
            if not self._free:
                return
            if party in self._using:
                continue
            queue = self._waiting.pop(party)
            while queue and queue[0].cancelled():  # a task that was cancelled, and has not run since
                queue.popleft()
            if not queue:
                continue
            place = queue.popleft()
            if queue:  # behind all others
                self._waiting[party] = queue
            self._take(party)
            place.set_result(None)
