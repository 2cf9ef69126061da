"""The cluster of a replay: the broker that takes the place of a recorded one, and the versions that the cluster serves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping

from ottla import __version__
from ottla.client.cluster import ClusterClient
from ottla.client.errors import ClusterError
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.releases import COMMAND_SOFTWARE
from ottla.server.network.frames import ReceiveBuffer
from ottla.traffic.entries import Entry, EntryReader
from ottla.traffic.relay import RelaySide
from ottla.traffic.replay_report import ReplayReport
from ottla.traffic.replaying import Replayer, ServedVersions
from ottla.traffic.routing import Topic
from ottla.traffic.upstream import connect_to_broker

#: How long the replay waits for a broker to name leaders or a coordinator. Without them a request goes to the broker in place of the recorded one.
LOOKUP_MS_MAX = 5_000


class ClusterTarget:
    """The brokers of a cluster, and what they lead and coordinate."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster
        self._inbox = ReceiveBuffer()
        #: The brokers that were there when the replay began, and those that were seen since: one may have joined a moment later.
        self._places = dict(cluster.brokers)
        self._first = min(self._places)

    @property
    def nodes(self) -> Iterable[int]:
        return self._places

    def in_place_of(self, node: int) -> int:
        """Return the broker of this id if there is one, and else the same one for each."""
        return node if node in self._places else self._first

    async def connect(self, node: int) -> RelaySide:
        cluster = self._cluster
        return await connect_to_broker(cluster.world, self._places[node], cluster.security, self._inbox)

    async def leaders(self, topic: Topic) -> Mapping[int, int]:
        """Return the leaders of a topic's partitions."""
        try:
            async with asyncio.timeout(LOOKUP_MS_MAX / 1000):
                found = await self._cluster.metadata([topic] if isinstance(topic, str) else None)
        except (ClusterError, TimeoutError):
            return {}
        self._see_brokers()
        return {
            partition.partition_index: partition.leader_id
            for each in found.topics
            if topic in (each.name, each.topic_id)
            for partition in each.partitions
            if partition.leader_id in self._places
        }

    async def coordinator(self, kind: int, key: str) -> int | None:
        """Return the coordinator, if it is there."""
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        try:
            found = await self._cluster.request(request, timeout_ms=LOOKUP_MS_MAX)
            (row,) = found.coordinators
            if row.error_code:
                return None
            if row.node_id not in self._places:
                await self._cluster.metadata([])
                self._see_brokers()
        except ClusterError:
            return None
        return row.node_id if row.node_id in self._places else None

    def _see_brokers(self) -> None:
        """Add the brokers of the last metadata. One that was known keeps its address."""
        self._places = self._cluster.brokers | self._places


async def replay_to(cluster: ClusterClient, entries: AsyncIterator[Entry], report: ReplayReport, speed: float) -> None:
    """Send the requests of a recording to a cluster, each to the brokers that it belongs to there.

    Raises:
        ClusterError: the cluster cannot be reached.
        TrafficFileError: the recording is damaged. The requests before the damage have been sent.
    """
    cluster.doing = "reading the cluster's brokers"
    async with cluster.limit():
        await cluster.metadata([])
        served = await cluster.request(ApiVersionsRequest(COMMAND_SOFTWARE, __version__))
    versions = ServedVersions({row.api_key: (row.min_version, row.max_version) for row in served.api_keys})
    await Replayer(cluster.world, ClusterTarget(cluster), versions, report, speed).run(entries)


async def replay_file(cluster: ClusterClient, reader: EntryReader, report: ReplayReport, speed: float) -> None:
    """Send the requests of a file to a cluster. Raises as `replay_to`."""

    async def entries() -> AsyncIterator[Entry]:
        for entry in reader:
            yield entry

    await replay_to(cluster, entries(), report, speed)
