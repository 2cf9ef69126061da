"""End offsets and committed offsets of a whole cluster, with one request for each broker.

`topics.list_offsets` and `groups.committed_offsets` follow leaders and coordinators until they have an answer. These do not:
what a broker does not answer is left out, because the next sample comes in some seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ottla.client.cluster import ClusterClient
from ottla.client.errors import CommandFailed
from ottla.client.groups import OFFSET_FETCH_VERSION
from ottla.client.leaders import TopicPartition
from ottla.protocol.messages.list_groups import ListedGroup, ListGroupsRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

#: Partitions in one request: a broker answers so many in one turn of its event loop or two.
PARTITIONS_AT_ONCE = 2_000
GROUPS_AT_ONCE = 200


async def offsets_by_leader(
    cluster: ClusterClient, leaders: Mapping[int, Iterable[TopicPartition]], timestamp: int
) -> dict[TopicPartition, int]:
    """Return the offsets that the leaders answer; partitions with an error, and those of brokers that do not answer, are left out."""
    found: dict[TopicPartition, int] = {}
    for node, places in sorted(leaders.items()):
        listed = sorted(places)
        for first in range(0, len(listed), PARTITIONS_AT_ONCE):
            topics: dict[str, ListOffsetsTopic] = {}
            for name, index in listed[first : first + PARTITIONS_AT_ONCE]:
                topic = topics.setdefault(name, ListOffsetsTopic(name, []))
                topic.partitions.append(ListOffsetsPartition(partition_index=index, timestamp=timestamp))
            cluster.doing = f"listing the offsets of broker {node}"
            try:
                response = await cluster.request(ListOffsetsRequest(-1, 0, list(topics.values())), node)
            except CommandFailed:
                break
            found.update(
                ((topic.name, part.partition_index), part.offset)
                for topic in response.topics
                for part in topic.partitions
                if not part.error_code
            )
    return found


async def groups_by_broker(cluster: ClusterClient, nodes: Iterable[int]) -> dict[int, list[ListedGroup]]:
    """Return the groups that each broker coordinates; brokers that do not answer are left out."""
    found: dict[int, list[ListedGroup]] = {}
    for node in sorted(nodes):
        cluster.doing = f"listing the groups of broker {node}"
        try:
            response = await cluster.request(ListGroupsRequest(), node)
        except CommandFailed:
            continue
        if not response.error_code:
            found[node] = response.groups
    return found


async def committed_of_groups(
    cluster: ClusterClient, node: int, groups: Sequence[str]
) -> dict[str, dict[TopicPartition, int]]:
    """Return the committed offsets of groups that `node` coordinates; groups with an error are left out."""
    found: dict[str, dict[TopicPartition, int]] = {}
    for first in range(0, len(groups), GROUPS_AT_ONCE):
        wanted = [
            OffsetFetchRequestGroup(group_id=name, topics=None) for name in groups[first : first + GROUPS_AT_ONCE]
        ]
        cluster.doing = f"fetching the offsets of groups of broker {node}"
        try:
            response = await cluster.request(OffsetFetchRequest(groups=wanted), node, version=OFFSET_FETCH_VERSION)
        except CommandFailed:
            break
        for row in response.groups:
            if not row.error_code:
                found[row.group_id] = {
                    (topic.name, part.partition_index): part.committed_offset
                    for topic in row.topics
                    for part in topic.partitions
                    if part.committed_offset >= 0 and not part.error_code
                }
    return found
