"""Administration of share groups (KIP-932): their members, and the offsets at which their records begin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.client.cluster import ClusterClient
from ottla.client.cluster_error import check
from ottla.client.coordinator_requests import ask_about_group, first_group
from ottla.client.groups import GroupDescription, GroupMember, assigned_places
from ottla.client.leaders import TopicPartition
from ottla.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from ottla.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from ottla.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from ottla.protocol.messages.share_group_describe import ShareGroupDescribeRequest

NO_OFFSET = -1


class SharePosition(NamedTuple):
    """The first offset that a share group has not finished, the leader epoch of it, and the lag: each -1 if it is not known."""

    start_offset: int
    leader_epoch: int
    lag: int


async def describe_share_group(cluster: ClusterClient, group: str) -> GroupDescription:
    doing = f"describing share group {group}"
    found = await ask_about_group(cluster, group, ShareGroupDescribeRequest([group]), doing, first_group)
    check(f"group {group}", found.error_code, found.error_message)
    members = [
        GroupMember(
            row.member_id, row.client_id, row.client_host, None, assigned_places(row.assignment), row.member_epoch
        )
        for row in found.members
    ]
    return GroupDescription(
        group, found.group_state, "share", found.assignor_name, members, found.group_epoch, found.assignment_epoch
    )


async def share_positions(cluster: ClusterClient, group: str) -> dict[TopicPartition, SharePosition]:
    """Return where the group is in each of its partitions."""
    request = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(group, None)])
    found = await ask_about_group(cluster, group, request, f"fetching the offsets of share group {group}", first_group)
    check(f"group {group}", found.error_code, found.error_message)
    return {
        (topic.topic_name, part.partition_index): SharePosition(part.start_offset, part.leader_epoch, part.lag)
        for topic in found.topics
        for part in topic.partitions
        if not part.error_code
    }


async def set_share_positions(
    cluster: ClusterClient, group: str, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, tuple[int, str | None]]:
    """Set where a group without members begins. Return the error code and message of each partition."""
    topics: dict[str, AlterShareGroupOffsetsRequestTopic] = {}
    for (name, index), offset in sorted(offsets.items()):
        topic = topics.setdefault(name, AlterShareGroupOffsetsRequestTopic(name, []))
        topic.partitions.append(AlterShareGroupOffsetsRequestPartition(index, offset))
    request = AlterShareGroupOffsetsRequest(group, list(topics.values()))
    response = await ask_about_group(cluster, group, request, f"setting the offsets of share group {group}")
    check(f"group {group}", response.error_code, response.error_message)
    return {
        (topic.topic_name, part.partition_index): (part.error_code, part.error_message)
        for topic in response.responses
        for part in topic.partitions
    }


async def delete_share_positions(
    cluster: ClusterClient, group: str, names: Iterable[str]
) -> dict[str, tuple[int, str | None]]:
    """Delete the group's offsets of whole topics. Return the error code and message of each topic."""
    request = DeleteShareGroupOffsetsRequest(
        group, [DeleteShareGroupOffsetsRequestTopic(name) for name in sorted(names)]
    )
    response = await ask_about_group(cluster, group, request, f"deleting offsets of share group {group}")
    check(f"group {group}", response.error_code, response.error_message)
    return {topic.topic_name: (topic.error_code, topic.error_message) for topic in response.responses}
