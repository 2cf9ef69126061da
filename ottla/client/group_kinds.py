"""Groups of each kind: share and streams groups, and what all kinds have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ottla.client.cluster import ClusterClient, ask_about_group, first_group
from ottla.client.errors import check
from ottla.client.groups import GroupDescription, GroupMember, assigned_places, describe_group, kind_of, modern_member
from ottla.client.partitions import TopicPartition
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
from ottla.protocol.messages.shared_structs import TaskIds
from ottla.protocol.messages.streams_group_describe import (
    Assignment,
    DescribedGroup,
    StreamsGroupDescribeRequest,
    Subtopology,
)

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


#: The names of topics that Kafka Streams creates, after the application id.
_INTERNAL = re.compile(
    r".*-(changelog|repartition|subscription-registration-topic|subscription-response-topic"
    r"|KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-\d+-topic)"
)


async def describe_streams_group(cluster: ClusterClient, group: str) -> DescribedGroup:
    """Return the group as its coordinator describes it."""
    request = StreamsGroupDescribeRequest([group])
    doing = f"describing streams group {group}"
    found: DescribedGroup = await ask_about_group(cluster, group, request, doing, first_group)
    check(f"group {group}", found.error_code, found.error_message)
    return found


def subtopologies(group: DescribedGroup) -> list[Subtopology]:
    return [] if group.topology is None else group.topology.subtopologies or []


def input_topics(group: DescribedGroup, *, repartitions: bool = False) -> set[str]:
    """Return the topics that the topology reads; `repartitions`: those through which it passes records on, too."""
    names = {topic for part in subtopologies(group) for topic in part.source_topics}
    if repartitions:
        names |= {topic.name for part in subtopologies(group) for topic in part.repartition_source_topics}
    return names


def task_places(group: DescribedGroup, tasks: Iterable[TaskIds]) -> Iterator[TopicPartition]:
    """Yield the partitions that tasks read."""
    read = {
        part.subtopology_id: [*part.source_topics, *(topic.name for topic in part.repartition_source_topics)]
        for part in subtopologies(group)
    }
    for task in tasks:
        yield from ((topic, index) for topic in read[task.subtopology_id] for index in task.partitions)


def internal_topics(group: DescribedGroup) -> tuple[list[str], list[str]]:
    """Return the topics that the application has made for itself, and those of the topology that are not named as such."""
    sources = input_topics(group)
    found = [
        topic.name
        for part in subtopologies(group)
        for topic in (*part.repartition_source_topics, *part.state_changelog_topics)
        if topic.name not in sources
    ]
    own = [name for name in found if name.startswith(f"{group.group_id}-") and _INTERNAL.fullmatch(name)]
    return own, [name for name in found if name not in own]


SHARE, STREAMS = "share", "streams"


async def describe_any_group(cluster: ClusterClient, group: str) -> GroupDescription:
    """Return state and members of a group, whatever its kind. A streams group's members have tasks, by their subtopology.

    Raises:
        CommandFailed: there is no such group.
    """
    kind = await kind_of(cluster, group)
    if kind == SHARE:
        return await describe_share_group(cluster, group)
    if kind == STREAMS:
        return await _describe_streams_group(cluster, group)
    return await describe_group(cluster, group)


async def _describe_streams_group(cluster: ClusterClient, group: str) -> GroupDescription:
    found = await describe_streams_group(cluster, group)
    members = [modern_member(row, _tasks) for row in found.members]
    assignor = found.assignor_name or ""
    return GroupDescription(
        group, found.group_state, STREAMS, assignor, members, found.group_epoch, found.assignment_epoch
    )


def _tasks(assignment: Assignment) -> list[TopicPartition]:
    """Return the active tasks: subtopology and partition."""
    return [(task.subtopology_id, index) for task in assignment.active_tasks for index in task.partitions]
