"""Objects that no record names: a broker that dies while another leader deletes the copy that it is writing leaves some.

COPY_STARTED is committed before the first object is written. So an object without a record is of a segment that was deleted, whose id never comes
back: it does not matter how late, and by whom, the object is deleted. That no record names it is known by a barrier, records of a segment that
is nowhere: they are written after the listing, and once they are replayed here, all that was committed before the listing is known.

The leader of a partition's records lists its folder, one folder in a second, and deletes what has been without a record for
`ottla.tier.orphan.age.ms`. Within that time a cluster that was restored from a snapshot can be set back once more. Where a topic is there and
not one segment of a partition has a record, the records are what is missing, and nothing is deleted.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import NamedTuple

from ottla.broker.configs import BrokerConfigs
from ottla.broker.tiers.local_layout import is_uuid
from ottla.broker.tiers.objects import StoreCalls, TierFailure, TierStore
from ottla.broker.tiers.remote_segments import RemoteSegment, RemoteState, TieredPartition, changed, started
from ottla.broker.tiers.tier_driver import CALL_TIMEOUT, TierDriver
from ottla.protocol.errors import KafkaError
from ottla.protocol.primitives import uuid_from_str
from ottla.server.clock import pause
from ottla.server.world import World
from ottla.storage.errors import StorageFailure

log = logging.getLogger(__name__)

AGE = "ottla.tier.orphan.age.ms"
#: Sweeps within that age.
SWEEPS = 4
#: One folder in this time: a sweep of 10,000 partitions takes three hours, and no store feels it.
FOLDER_MS = 1_000
OBJECT = re.compile(r"\d{20}-([A-Za-z0-9_-]{22})\.[\w-]+")


class FoundObject(NamedTuple):
    """An object of a partition's folder, and whose segment's it is."""

    name: str
    segment_id: bytes
    modified_ms: int


class Orphans:
    """The sweeps of one broker."""

    def __init__(self, world: World, configs: BrokerConfigs, driver: TierDriver, node_id: int) -> None:
        self._world, self._configs, self._driver, self._node_id = world, configs, driver, node_id
        self._calls = StoreCalls(world, "tier sweep", 1)
        #: When an object was first seen without a record (monotonic, ms): the clocks of brokers and of the store may differ.
        self._seen_ms: dict[str, int] = {}

    async def run(self) -> None:
        while True:
            await pause(self._world.clock, self._configs[AGE] / SWEEPS)
            try:
                await self._sweep()
            except (TierFailure, KafkaError, StorageFailure) as fault:
                log.info("What has no record stays in remote storage for now: %s", fault)
            except Exception:  # a mistake of ours must not end the sweeps of this broker
                log.exception("A sweep of remote storage has failed")

    async def _sweep(self) -> None:
        store, timeout_ms = await self._driver.own_store(), self._configs[CALL_TIMEOUT]
        seen: dict[str, int] = {}
        for place in await self._calls.run(timeout_ms, self._driver.layout.partitions, store):
            if self._driver.topic.led_segments(place) is None:
                continue
            await pause(self._world.clock, FOLDER_MS)
            found = await self._calls.run(timeout_ms, objects_in, store, self._driver.layout.folder_of(place))
            for each in await self._due(place, found, seen):
                await self._calls.run(timeout_ms, store.delete, each.name)
                del seen[each.name]
                log.info("Deleted %s from remote storage, which no record names", each.name)
        self._seen_ms = seen
        await self._calls.run(timeout_ms, finish, store, self._world.clock.wall_ms() - self._configs[AGE])

    async def _due(
        self, place: TieredPartition, found: Sequence[FoundObject], seen: dict[str, int]
    ) -> list[FoundObject]:
        """Return the objects that have been without a record for long enough. What is younger is noted in `seen`."""
        due = []
        now_ms, wall_ms, age_ms = self._world.clock.mono_ms(), self._world.clock.wall_ms(), self._configs[AGE]
        for each in self._unnamed(place, found):
            since_ms = seen[each.name] = self._seen_ms.get(each.name, now_ms)
            if max(now_ms - since_ms, wall_ms - each.modified_ms) >= age_ms:
                due.append(each)
        if due:
            await self._barrier(place)
        return self._unnamed(place, due)

    def _unnamed(self, place: TieredPartition, found: Sequence[FoundObject]) -> list[FoundObject]:
        segments = self._driver.topic.led_segments(place)
        if segments is None or (not segments.by_id and self._driver.is_wanted(place)):
            return []
        return [each for each in found if each.segment_id not in segments.by_id]

    async def _barrier(self, place: TieredPartition) -> None:
        """Return once all is replayed that was committed before. Raises KafkaError."""
        now_ms, nowhere = self._world.clock.wall_ms(), self._world.rng.getrandbits(128).to_bytes(16, "big")
        segment = RemoteSegment(nowhere, 0, 0, 0, -1, ((0, 0),), self._node_id, now_ms)
        states = RemoteState.DELETE_STARTED, RemoteState.DELETE_FINISHED
        ended = [changed(place, nowhere, state, self._node_id, now_ms) for state in states]
        await self._driver.topic.publish(place, started(place, segment), *ended)


def finish(store: TierStore, before_ms: int) -> None:
    """Delete what writers that were killed have left half written, in a folder."""
    for name in store.sweep(before_ms):
        log.info("Deleted %s from remote storage, which was not written to its end", name)


def objects_in(store: TierStore, folder: str) -> list[FoundObject]:
    """Return the objects of a partition's folder. What has another name is not ours."""
    found = []
    for each in store.list(folder):
        match = OBJECT.fullmatch(each.name.rpartition("/")[2])
        if match is not None and is_uuid(match[1]):
            found.append(FoundObject(each.name, uuid_from_str(match[1]), each.modified_ms))
    return found
