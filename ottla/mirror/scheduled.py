"""Scheduled tasks of a worker: pairs of offsets, checkpoints of groups, heartbeats.

Each worker writes the pairs of its own partitions; the worker with the first lane writes checkpoints and heartbeats.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from ottla.client.cluster import ClusterClient
from ottla.client.failures import Failure
from ottla.mirror.catalogue import Catalogue, Say
from ottla.mirror.checkpoints import CheckpointLog, Checkpoints
from ottla.mirror.emitting import EMIT_S, HEARTBEAT_S, Emitter, MirrorHeartbeats, SyncEmitter
from ottla.mirror.formats import OffsetSync, read_offset_sync
from ottla.mirror.names import HEARTBEATS
from ottla.mirror.options import Clusters, MirrorOptions
from ottla.mirror.positions import Positions, TopicReader
from ottla.mirror.syncs import SyncStore
from ottla.protocol.records.record import Record


class MirrorTasks:
    """The tasks of a worker. `topics` are the topics that they write to, each with its cluster."""

    def __init__(
        self,
        clusters: Clusters,
        options: MirrorOptions,
        catalogue: Catalogue,
        positions: Positions,
        say: Say,
        is_first: Callable[[], bool],
    ) -> None:
        self.topics: list[tuple[ClusterClient, str]] = []
        #: The last known ids of these topics.
        self._ids: dict[tuple[ClusterClient, str], bytes | None] = {}
        self._options = options
        self._catalogue = catalogue
        self._positions = positions
        self._clock = clusters.target.world.clock
        self._say = say
        self._is_first = is_first
        self._syncs: SyncEmitter | None = None
        self._checkpoints: Checkpoints | None = None
        self._heartbeats: MirrorHeartbeats | None = None
        in_source = options.offset_syncs == "source"
        if options.offset_syncs != "none":
            self._keep_pairs(clusters, catalogue, clusters.source if in_source else clusters.target)
        if options.heartbeats:
            both = [(clusters.target, True), *([(clusters.source, False)] if in_source else [])]
            self._heartbeats = MirrorHeartbeats(options.policy.source, options.policy.target, both)
            self.topics += [(cluster, HEARTBEATS) for cluster, _ in both]

    def _keep_pairs(self, clusters: Clusters, catalogue: Catalogue, cluster: ClusterClient) -> None:
        policy, store = self._options.policy, SyncStore()
        topic = policy.offset_syncs_topic(in_source=cluster is clusters.source)
        self.topics += [(cluster, topic), (clusters.target, policy.checkpoints_topic)]

        def replay(record: Record) -> None:
            if (pair := read_offset_sync(record)) is not None:
                store.add(pair)

        self._syncs = SyncEmitter(cluster, topic, catalogue.target_ids)
        self._checkpoints = Checkpoints(
            clusters.source,
            clusters.target,
            TopicReader(cluster, topic, replay, store.clear),
            store,
            CheckpointLog(clusters.positions, policy.checkpoints_topic),
            Emitter(clusters.target, policy.checkpoints_topic),
            catalogue,
            self._options.groups,
            self._say,
        )

    async def keep_topics(self) -> None:
        """Create the mirror's own topics that do not exist, also those that were deleted since the last call.

        Their contents are written again: the last pair of offsets of each partition by each worker, and all checkpoints that
        follow from these.

        Raises:
            PositionsLost: the topic of positions was deleted while this worker ran.
            Failure: a topic cannot be created.
        """
        self._positions.check(await self._catalogue.create_positions(self._positions.topic))
        for place in self.topics:
            await self._catalogue.create_internal(*place)
            last, now = self._ids.get(place), await self._catalogue.internal_id(*place)
            if None not in (last, now) and last != now:
                self._say(f"{place[1]} was deleted, and is written again as far as this worker knows it")
                if self._syncs is not None and place[1] == self._syncs.topic:
                    self._syncs.write_again()
            self._ids[place] = now or last

    @property
    def restarted_checkpoints(self) -> int:
        """Return how many checkpoints began again, because their topic was created again."""
        return 0 if self._checkpoints is None else self._checkpoints.restarted

    def take(self, pairs: Iterable[OffsetSync]) -> None:
        """Take the pairs of offsets of a committed transaction."""
        if self._syncs is not None:
            self._syncs.take(pairs)

    async def run(self) -> None:
        """Run all tasks for ever. A failure is reported, and its task runs again at its next time."""
        await asyncio.gather(
            self._each(EMIT_S, self._write_pairs),
            self._each(self._options.checkpoint_s, self._translate_groups),
            self._each(HEARTBEAT_S, self._beat),
        )

    async def end(self) -> None:
        """Write the last pairs and checkpoints: then a group at the end of its topics is translated exactly."""
        for task in (self._beat, self._write_pairs, self._translate_groups):
            await self._try(task)

    async def _each(self, every_s: float, task: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(every_s)
            await self._try(task)

    async def _try(self, task: Callable[[], Awaitable[None]]) -> None:
        try:
            await task()
        except (Failure, TimeoutError) as fault:
            self._say(f"{fault or 'time is up'}; it is tried again")
            await self._keep_topics()

    async def _keep_topics(self) -> None:
        """Create a deleted topic at once, because a task may have failed for that reason."""
        try:
            await self.keep_topics()
        except (Failure, TimeoutError) as fault:
            self._say(f"the mirror's own topics: {fault or 'time is up'}; it is tried again")

    async def _write_pairs(self) -> None:
        if self._syncs is not None:
            await self._syncs.flush()

    async def _translate_groups(self) -> None:
        if self._checkpoints is None or not self._is_first():
            return
        await self._checkpoints.round()
        if self._options.set_group_offsets:
            await self._checkpoints.apply()

    async def _beat(self) -> None:
        if self._heartbeats is not None and self._is_first():
            await self._heartbeats.beat(self._clock.wall_ms())
