"""The parts of remote segments that were read last, and those that will be read next. It belongs to the loop; the store is called on threads.

    kept      in memory, up to a number of bytes; what was read last stays
    coming    a call of the store is under way: who else needs the chunk waits for the same call
    ahead     coming or kept, and no read has asked for it yet. There is a limit for these, so that what is read ahead for one consumer does not
              push out what was read ahead for another, nor take the threads of those that wait

Each call has a deadline. A call of reading ahead that fails is no failure of anything: who needs the chunk asks again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from ottla.broker.configs import BrokerConfigs
from ottla.broker.tiers.chunk_files import ChunkFiles, ChunkName
from ottla.broker.tiers.objects import StoreCalls, StoredSegment
from ottla.protocol.primitives import Buffer
from ottla.server.world import World

#: The bytes that are kept in memory for the whole broker: sixteen chunks of 4 MiB.
KEPT_BYTES = 64 << 20
#: The number of chunks that may be read ahead. Four consumers then have two each, which is enough for a store that answers
#: after 50 ms.
AHEAD_MAX = 8
AHEAD_AT_ONCE = 4
#: The segments that are ready to be read: a layout may have to read an object for that.
OPENED_MAX = 1_000
READERS, CALL_TIMEOUT = "remote.log.reader.threads", "ottla.tier.call.timeout.ms"
CACHE_BYTES = "ottla.tier.cache.bytes"

Fetch = Callable[[], Buffer]


class RemoteChunks:
    """The chunks of a broker by their names."""

    def __init__(self, world: World, configs: BrokerConfigs, files: ChunkFiles) -> None:
        self._world, self._configs, self._files = world, configs, files
        self._calls = StoreCalls(world, "tier reads", configs[READERS])
        self._ahead_calls = StoreCalls(world, "tier reads ahead", AHEAD_AT_ONCE)
        self._kept: OrderedDict[ChunkName, Buffer] = OrderedDict()
        self._coming: dict[ChunkName, asyncio.Future[Buffer]] = {}
        self._ahead: set[ChunkName] = set()
        self._opened: OrderedDict[bytes, StoredSegment] = OrderedDict()
        self.bytes_kept = 0

    @property
    def waiting_calls(self) -> int:
        """Return how many calls wait for a thread."""
        return self._calls.wanted - self._calls.running

    @property
    def idle_share(self) -> float:
        return self._calls.idle_share

    async def get(self, name: ChunkName, fetch: Fetch) -> Buffer:
        """Return a chunk; `fetch` reads it from the store.

        Raises:
            TierFailure: the store has failed, or has not answered in time.
        """
        self._ahead.discard(name)
        found = self._kept.get(name)
        if found is not None:
            self._kept.move_to_end(name)
            return found
        coming = self._coming.get(name)
        if coming is None:
            coming = self._begin(self._calls, name, fetch)
        return await asyncio.shield(coming)

    async def opened(self, segment_id: bytes, open_segment: Callable[[], StoredSegment]) -> StoredSegment:
        """Return a segment that can be read; `open_segment` may ask the store. Raises TierFailure."""
        found = self._opened.get(segment_id)
        if found is None:
            found = self._opened[segment_id] = await self._calls.run(self._configs[CALL_TIMEOUT], open_segment)
            if len(self._opened) > OPENED_MAX:
                self._opened.popitem(last=False)
        else:
            self._opened.move_to_end(segment_id)
        return found

    def has(self, name: ChunkName) -> bool:
        return name in self._kept or name in self._coming

    def read_ahead(self, name: ChunkName, fetch: Fetch) -> bool:
        """Have the store read a chunk that will be needed. Return False if there is no room for it."""
        if self.has(name):
            return True
        if len(self._ahead) >= AHEAD_MAX:
            return False
        self._ahead.add(name)
        self._begin(self._ahead_calls, name, fetch)
        return True

    def forget(self, segment_id: bytes) -> None:
        """Ask the store again for a segment whose bytes were wrong: the fault may be this disk's, or may have passed."""
        self._opened.pop(segment_id, None)
        for name in [each for each in self._kept if each.segment_id == segment_id]:
            self._drop(name)
            self._files.forget(name)

    def _begin(self, calls: StoreCalls, name: ChunkName, fetch: Fetch) -> asyncio.Future[Buffer]:
        coming: asyncio.Future[Buffer] = asyncio.get_running_loop().create_future()
        self._coming[name] = coming
        self._world.spawn(self._fetch(calls, name, fetch, coming), f"chunk {name.number}{name.suffix}")
        return coming

    async def _fetch(self, calls: StoreCalls, name: ChunkName, fetch: Fetch, coming: asyncio.Future[Buffer]) -> None:
        passage = self._files.passage(name, fetch)
        try:
            data = await calls.run(self._configs[CALL_TIMEOUT], passage, undo=passage.undo)
            self._files.settle(name, passage)
            self._keep(name, data)
        except Exception as fault:  # all that wait for the chunk get the error, whatever it is
            self._ahead.discard(name)
            coming.set_exception(fault)
            coming.exception()  # there may be no read that waits
        else:
            coming.set_result(data)
        finally:
            del self._coming[name]
            coming.cancel()  # the node stops

    def _keep(self, name: ChunkName, data: Buffer) -> None:
        self._kept[name] = data
        self.bytes_kept += len(data)
        while self.bytes_kept > KEPT_BYTES and len(self._kept) > 1:
            self._drop(next(iter(self._kept)))

    def _drop(self, name: ChunkName) -> None:
        self._ahead.discard(name)
        self.bytes_kept -= len(self._kept.pop(name))
