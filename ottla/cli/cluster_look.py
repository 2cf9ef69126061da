"""One look at a whole cluster for `ottla top`. It takes few requests to each broker, and one scrape of each admin listener."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from ottla.cli.application import Admin
from ottla.cli.top_view import WANTED, GroupLook, NodeLook, TopicLook, TopLook
from ottla.client.admin_listeners import AdminSample, scrape
from ottla.client.cluster import ClusterClient, NoConnection
from ottla.client.cluster_state import describe_log_dirs
from ottla.client.failures import Failure
from ottla.client.group_offsets import OFFSET_FETCH_VERSION
from ottla.client.partitions import NO_LEADER, TopicPartition
from ottla.client.topics import LATEST, adding_replicas
from ottla.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.metadata import MetadataResponseTopic
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.protocol.replica_sets import missing_replicas

#: One request asks for the offsets of this many groups.
GROUPS_AT_ONCE = 100
SCRAPE_S_MAX = 5.0
SHARE = "share"

Ends = dict[TopicPartition, int]


async def look_at(cluster: ClusterClient, admin: Admin) -> TopLook:
    """Read everything once; a broker that does not answer has no lag, groups or metrics.

    Raises:
        CommandFailed: no broker answers.
    """
    topics = [topic for topic in (await cluster.metadata(None)).topics if not topic.error_code]
    look = TopLook(cluster.world.clock.mono_ms())
    listeners = admin.addresses(cluster)
    look.nodes = {node: NodeLook() for node in cluster.brokers}
    for topic in topics:
        for part in topic.partitions:
            for node in part.replica_nodes:
                look.nodes.setdefault(node, NodeLook()).replicas += 1
            if part.leader_id in look.nodes:
                look.nodes[part.leader_id].leaders += 1
    adding = await adding_replicas(cluster, topics)
    ends, sizes, scrapes = await asyncio.gather(
        _ends(cluster, topics),
        _directories(cluster, look),
        asyncio.gather(*(_scraped(listeners.get(node)) for node in look.nodes)),
    )
    for samples, looked in zip(scrapes, look.nodes.values(), strict=True):
        looked.metrics = samples
    for topic in topics:
        name = topic.name or ""
        places = [(name, part.partition_index) for part in topic.partitions]
        look.topics[name] = TopicLook(
            partitions=len(places),
            behind=sum(
                part.leader_id == NO_LEADER
                or bool(
                    missing_replicas(part.replica_nodes, adding.get((name, part.partition_index), ()), part.isr_nodes)
                )
                for part in topic.partitions
            ),
            end=sum(ends.get(place, 0) for place in places),
            bytes=sum(sizes.get(place, 0) for place in places),
        )
    for node in cluster.brokers:
        look.groups |= await _groups(cluster, node, ends)
    return look


async def _scraped(address: str | None) -> list[AdminSample] | None:
    if address is None:
        return None
    try:
        return await scrape(address, WANTED, SCRAPE_S_MAX)
    except Failure:
        return None


async def _ends(cluster: ClusterClient, topics: Iterable[MetadataResponseTopic]) -> Ends:
    """Return the end of each partition. Each leader gets one request."""
    wanted: dict[int, dict[str, ListOffsetsTopic]] = {}
    for topic in topics:
        name = topic.name or ""
        for part in topic.partitions:
            if part.leader_id != NO_LEADER:
                rows = wanted.setdefault(part.leader_id, {}).setdefault(
                    name, ListOffsetsTopic(name=name, partitions=[])
                )
                rows.partitions.append(ListOffsetsPartition(partition_index=part.partition_index, timestamp=LATEST))
    found: Ends = {}

    async def ask(node: int, rows: list[ListOffsetsTopic]) -> None:
        try:
            response = await cluster.request(ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=rows), node)
        except NoConnection:
            return
        for topic in response.topics:
            for part in topic.partitions:
                if not part.error_code:
                    found[topic.name, part.partition_index] = part.offset

    await asyncio.gather(*(ask(node, list(rows.values())) for node, rows in wanted.items()))
    return found


async def _directories(cluster: ClusterClient, look: TopLook) -> dict[TopicPartition, int]:
    """Add the lag of each broker's replicas to the look. Return the bytes of each partition, counted for one replica."""
    sizes: dict[TopicPartition, int] = {}

    async def ask(node: int) -> None:
        try:
            directories = await describe_log_dirs(cluster, node)
        except Failure:
            return
        for directory in directories:
            for topic in directory.topics:
                for part in topic.partitions:
                    place = (topic.name, part.partition_index)
                    sizes[place] = max(part.partition_size, sizes.get(place, 0))
                    if not part.is_future_key:
                        look.nodes[node].replica_lag += max(0, part.offset_lag)

    await asyncio.gather(*(ask(node) for node in cluster.brokers))
    return sizes


async def _groups(cluster: ClusterClient, node: int, ends: Ends) -> dict[str, GroupLook]:
    """Return the groups that a broker coordinates."""
    try:
        listed = (await cluster.request(ListGroupsRequest(), node)).groups
        found = {row.group_id: GroupLook(row.group_type or "classic", row.group_state) for row in listed}
        share = [name for name, look in found.items() if look.type.lower() == SHARE]
        others = [name for name, look in found.items() if look.type.lower() != SHARE]
        for first in range(0, len(others), GROUPS_AT_ONCE):
            wanted = [
                OffsetFetchRequestGroup(group_id=name, topics=None) for name in others[first : first + GROUPS_AT_ONCE]
            ]
            response = await cluster.request(OffsetFetchRequest(groups=wanted), node, version=OFFSET_FETCH_VERSION)
            for group in response.groups:
                for topic in group.topics:
                    for part in topic.partitions:
                        _take(found[group.group_id], (topic.name, part.partition_index), part.committed_offset, ends)
        for first in range(0, len(share), GROUPS_AT_ONCE):
            names = [
                DescribeShareGroupOffsetsRequestGroup(name, None) for name in share[first : first + GROUPS_AT_ONCE]
            ]
            for group in (await cluster.request(DescribeShareGroupOffsetsRequest(names), node)).groups:
                for topic in group.topics:
                    for part in topic.partitions:
                        _take(found[group.group_id], (topic.topic_name, part.partition_index), part.start_offset, ends)
    except Failure:
        return {}
    return found


def _take(group: GroupLook, place: TopicPartition, offset: int, ends: Ends) -> None:
    if offset >= 0:
        group.committed += offset
        group.lag += max(0, ends.get(place, offset) - offset)
