"""The cluster of a replay: the broker that takes the place of a recorded one, and the versions that the cluster serves."""

from __future__ import annotations

from collections.abc import AsyncIterator

from ottla import __version__
from ottla.client.cluster import ClusterClient
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.releases import COMMAND_SOFTWARE
from ottla.server.address import Address
from ottla.server.network.frames import ReceiveBuffer
from ottla.traffic.entries import Entry, EntryReader
from ottla.traffic.relay import RelaySide
from ottla.traffic.replay_report import ReplayReport
from ottla.traffic.replaying import Replayer, ServedVersions
from ottla.traffic.upstream import connect_to_broker


async def replay_to(cluster: ClusterClient, entries: AsyncIterator[Entry], report: ReplayReport, speed: float) -> None:
    """Send the requests of a recording to a cluster.

    A recorded node is replaced by the broker with its id, or else by any broker.

    Raises:
        ClusterError: the cluster cannot be reached.
        TrafficFileError: the recording is damaged. The requests before the damage have been sent.
    """
    cluster.doing = "reading the cluster's brokers"
    async with cluster.limit():
        await cluster.metadata([])
        served = await cluster.request(ApiVersionsRequest(COMMAND_SOFTWARE, __version__))
    versions = ServedVersions({row.api_key: (row.min_version, row.max_version) for row in served.api_keys})
    places = {node: Address(host, port) for node, (host, port) in cluster.brokers.items()}
    inbox = ReceiveBuffer()

    async def connect(node: int) -> RelaySide:
        to = places.get(node) or places[min(places)]
        return await connect_to_broker(cluster.world, to, cluster.security, inbox)

    await Replayer(cluster.world, connect, versions, report, speed).run(entries)


async def replay_file(cluster: ClusterClient, reader: EntryReader, report: ReplayReport, speed: float) -> None:
    """Send the requests of a file to a cluster. Raises as `replay_to`."""

    async def entries() -> AsyncIterator[Entry]:
        for entry in reader:
            yield entry

    await replay_to(cluster, entries(), report, speed)
