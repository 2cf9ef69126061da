"""The components of one broker's remote storage (KIP-405). A broker without remote storage imports neither this module nor
those that it uses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

from ottla.broker.cluster.channels import BrokerChannels, ControllerChannel
from ottla.broker.configs import BrokerConfigs
from ottla.broker.fetch.remote_fetch import RemoteFetches
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.replication.committed_write import CommittedWrites
from ottla.broker.replication.replicas import Replicas
from ottla.broker.tiered_topics import TieredTopics
from ottla.broker.tiers.chunk_files import ChunkFiles
from ottla.broker.tiers.local_layout import LocalLayout
from ottla.broker.tiers.metadata_topic import MetadataTopic
from ottla.broker.tiers.objects import TierStore
from ottla.broker.tiers.orphans import Orphans
from ottla.broker.tiers.partition_tier import TierCounts
from ottla.broker.tiers.remote_chunks import CACHE_BYTES, RemoteChunks
from ottla.broker.tiers.remote_states import StoredStates
from ottla.broker.tiers.rsm_layout import RsmLayout
from ottla.broker.tiers.tier_driver import TierDriver
from ottla.broker.tiers.tier_reads import TierReads
from ottla.broker.tiers.tier_report import tier_metrics, tier_states
from ottla.server.config.remote_storage import CACHE
from ottla.server.config.rsm_settings import rsm_settings
from ottla.server.metrics import Family
from ottla.server.world import World


class BrokerTiers:
    """The parts of remote storage: the driver of copies and deletions, the reads of fetches and of followers, and their metrics and states."""

    def __init__(
        self,
        world: World,
        configs: BrokerConfigs,
        metadata: MetadataCache,
        replicas: Replicas,
        tiered: TieredTopics,
        channels: BrokerChannels,
        controller: ControllerChannel,
        writes: CommittedWrites,
        open_store: Callable[[], TierStore],
    ) -> None:
        self._world, self._clock, self._counts = world, world.clock, TierCounts()
        topic = MetadataTopic(world, configs, metadata, replicas, channels, controller, writes)
        settings = rsm_settings(configs.node.values, configs.node.static)
        layout = LocalLayout() if settings is None else RsmLayout(settings)
        self.driver = TierDriver(world, configs, metadata, replicas, tiered, topic, open_store, layout, self._counts)
        self._orphans = Orphans(world, configs, self.driver)
        self._sweeps: asyncio.Task[None] | None = None
        folder = configs[CACHE] and f"{configs[CACHE]}/{metadata.cluster_id}-{metadata.node_id}"
        self._chunk_files = ChunkFiles(world, folder, configs[CACHE_BYTES])
        chunks = RemoteChunks(world, configs, self._chunk_files)
        self.fetches = RemoteFetches(TierReads(world, configs, self.driver, self._counts, chunks))
        replicas.fetchers.take_states_from(StoredStates(world, configs, self.driver, self._counts))
        replicas.listeners.append(self.driver)

    async def start(self) -> None:
        await self._chunk_files.open()
        await self.driver.start()
        self._sweeps = self._world.spawn(self._orphans.run(), "sweeps of remote storage")

    async def stop(self) -> None:
        if self._sweeps is not None:
            self._sweeps.cancel()
            await asyncio.wait([self._sweeps])
        await self.driver.stop()

    def metrics(self) -> Iterator[Family]:
        yield from tier_metrics(self.driver, self._counts, self._clock)
        yield from self.fetches.reads.metrics()

    def states(self, topic: str | None) -> Iterator[dict[str, Any]]:
        """Yield the state of each partition with remote storage that this broker leads, or of those of a topic (`tier_states`)."""
        return tier_states(self.driver, topic, self._clock.wall_ms())
