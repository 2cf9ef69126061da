"""Objects that no record names: a broker that dies while another leader deletes the copy that it is writing leaves some.

COPY_STARTED is committed before the first object is written. So an object without a record is of a segment that was deleted, whose id never comes
back: it does not matter how late, and by whom, the object is deleted. That no record names it is known by a barrier (`MetadataTopic.catch_up`), which
is written after the listing: once it is replayed here, all that was committed before the listing is known.

The leader of a partition's records lists its folder, one folder in a second, and deletes what has been without a record for
`ottla.tier.orphan.age.ms`. Within that time a cluster that was restored from a snapshot can be set back once more. Where a topic is there and
not one segment of a partition has a record, the records are what is missing, and nothing is deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ottla.broker.configs import BrokerConfigs
from ottla.broker.tiers.objects import FoundObject, StoreCalls, TierFailure, TierStore, objects_in
from ottla.broker.tiers.remote_segments import TieredPartition
from ottla.broker.tiers.tier_driver import CALL_TIMEOUT, TierDriver
from ottla.protocol.errors import KafkaError
from ottla.server.clock import pause
from ottla.server.world import World
from ottla.storage.errors import StorageFailure

log = logging.getLogger(__name__)

AGE = "ottla.tier.orphan.age.ms"
#: Sweeps within that age.
SWEEPS = 4
#: One folder in this time: a sweep of 10,000 partitions takes three hours, and no store feels it.
FOLDER_MS = 1_000


class Orphans:
    """The sweeps of one broker."""

    def __init__(self, world: World, configs: BrokerConfigs, driver: TierDriver) -> None:
        self._world, self._configs, self._driver = world, configs, driver
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
        store, layout, timeout_ms = await self._driver.own_store(), self._driver.layout, self._configs[CALL_TIMEOUT]
        seen: dict[str, int] = {}
        for place in await self._calls.run(timeout_ms, layout.partitions, store):
            if self._driver.topic.led_segments(place) is None:
                continue
            await pause(self._world.clock, FOLDER_MS)
            found = await self._calls.run(timeout_ms, objects_in, store, layout, place)
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
            await self._driver.topic.catch_up(place)
        return self._unnamed(place, due)

    def _unnamed(self, place: TieredPartition, found: Sequence[FoundObject]) -> list[FoundObject]:
        segments = self._driver.topic.led_segments(place)
        if segments is None or (not segments.by_id and self._driver.is_wanted(place)):
            return []
        return [each for each in found if each.segment_id not in segments.by_id]


def finish(store: TierStore, before_ms: int) -> None:
    """Delete what writers that were killed have left half written, in a folder."""
    for name in store.sweep(before_ms):
        log.info("Deleted %s from remote storage, which was not written to its end", name)
