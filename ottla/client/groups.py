"""Groups of each kind, and their administration: classic and consumer groups, share groups, streams groups."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ottla.client.cluster import ClusterClient, ask_about_group, first_group
from ottla.client.errors import check, failure
from ottla.client.partitions import TopicPartition
from ottla.protocol.errors import ErrorCode, ProtocolError
from ottla.protocol.internal_topics.control_messages import ConsumerProtocolAssignment, decode_versioned
from ottla.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from ottla.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from ottla.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from ottla.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from ottla.protocol.messages.shared_structs import Assignment, TaskIds
from ottla.protocol.messages.streams_group_describe import (
    Assignment as StreamsAssignment,
)
from ottla.protocol.messages.streams_group_describe import (
    DescribedGroup as DescribedStreamsGroup,
)
from ottla.protocol.messages.streams_group_describe import (
    StreamsGroupDescribeRequest,
    Subtopology,
)

#: In these states of a classic group DescribeGroups leaves out the members' metadata.
REBALANCING = ("PreparingRebalance", "CompletingRebalance")


@dataclass(slots=True)
class GroupMember:
    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    assigned: list[TopicPartition] = field(default_factory=list)
    #: Only the consumer protocol sets these: the member's epoch, and its target assignment.
    epoch: int = -1
    target: list[TopicPartition] = field(default_factory=list)


@dataclass(slots=True)
class GroupDescription:
    group: str
    state: str
    type: str
    assignor: str
    members: list[GroupMember] = field(default_factory=list)
    #: Only the consumer protocol sets these: the epochs of the group and of its target assignment.
    epoch: int = -1
    target_epoch: int = -1


async def list_groups(cluster: ClusterClient) -> list[ListedGroup]:
    """Return all groups: each broker is asked for those that it coordinates."""
    cluster.doing = "listing groups"
    await cluster.metadata([])
    groups: dict[str, ListedGroup] = {}
    for node in sorted(cluster.brokers):

        async def ask(node: int = node) -> tuple[ListGroupsResponse, int]:
            response = await cluster.request(ListGroupsRequest(), node)
            return response, response.error_code

        response, code = await cluster.retry(ask)
        check(f"groups of broker {node}", code)
        groups.update((group.group_id, group) for group in response.groups)
    return [groups[name] for name in sorted(groups)]


async def kind_of(cluster: ClusterClient, group: str) -> str:
    """Return the type of a group: classic, consumer, share or streams.

    Raises:
        CommandFailed: there is no such group; the failure suggests names.
    """
    response = await ask_about_group(cluster, group, ListGroupsRequest(), f"looking for group {group}")
    check(f"groups of the coordinator of group {group}", response.error_code)
    for found in response.groups:
        if found.group_id == group:
            return str(found.group_type).lower() or "classic"
    known = [found.group_id for found in await list_groups(cluster)]
    raise failure(f"group {group}", ErrorCode.GROUP_ID_NOT_FOUND, name=group, known=known)


async def describe_group(cluster: ClusterClient, group: str) -> GroupDescription:
    """Return the state and the members. If there is no such group, the failure suggests names."""
    if await kind_of(cluster, group) == "consumer":
        return await _describe_consumer(cluster, group)
    return await _describe_classic(cluster, group)


async def members_metadata(cluster: ClusterClient, group: str) -> list[bytes] | None:
    """Return the metadata of a classic group's members; None while the group is in a rebalance."""
    found = await _ask_classic(cluster, group)
    if found.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
        check(f"group {group}", found.error_code, found.error_message)
    if found.members and found.group_state in REBALANCING:
        return None
    return [bytes(row.member_metadata) for row in found.members]


async def _ask_classic(cluster: ClusterClient, group: str) -> DescribedGroup:
    request = DescribeGroupsRequest(groups=[group])
    found: DescribedGroup = await ask_about_group(cluster, group, request, f"describing group {group}", first_group)
    return found


async def _describe_classic(cluster: ClusterClient, group: str) -> GroupDescription:
    found = await _ask_classic(cluster, group)
    check(f"group {group}", found.error_code, found.error_message)
    members = [
        GroupMember(
            row.member_id, row.client_id, row.client_host, row.group_instance_id, _assigned(row.member_assignment)
        )
        for row in found.members
    ]
    return GroupDescription(group, found.group_state, "classic", found.protocol_data, members)


def modern_member(row: Any, places: Callable[[Any], list[TopicPartition]]) -> GroupMember:
    """Return a member of a consumer or streams group. `places` reads the partitions of an assignment."""
    return GroupMember(
        row.member_id,
        row.client_id,
        row.client_host,
        row.instance_id,
        places(row.assignment),
        row.member_epoch,
        places(row.target_assignment),
    )


async def _describe_consumer(cluster: ClusterClient, group: str) -> GroupDescription:
    request = ConsumerGroupDescribeRequest(group_ids=[group])
    found = await ask_about_group(cluster, group, request, f"describing group {group}", first_group)
    check(f"group {group}", found.error_code, found.error_message)
    members = [modern_member(row, assigned_places) for row in found.members]
    return GroupDescription(
        group, found.group_state, "consumer", found.assignor_name, members, found.group_epoch, found.assignment_epoch
    )


def assigned_places(assignment: Assignment) -> list[TopicPartition]:
    return [(topic.topic_name, index) for topic in assignment.topic_partitions for index in topic.partitions]


def _assigned(data: bytes) -> list[TopicPartition]:
    """Return the assignment of a classic member; it is empty if the group's protocol type is not `consumer`."""
    try:
        assignment, _ = decode_versioned(ConsumerProtocolAssignment, data, newer_too=True)
    except ProtocolError:
        return []
    return [(topic.topic, index) for topic in assignment.assigned_partitions for index in topic.partitions]


async def delete_groups(cluster: ClusterClient, groups: Iterable[str]) -> None:
    for group in groups:
        request, doing = DeleteGroupsRequest(groups_names=[group]), f"deleting group {group}"
        result = await ask_about_group(cluster, group, request, doing, lambda response: response.results[0])
        if result.error_code:
            known = [found.group_id for found in await list_groups(cluster)]
            raise failure(f"group {group}", result.error_code, result.error_message, name=group, known=known)


NO_OFFSET = -1


class SharePosition(NamedTuple):
    """The first offset that a share group has not finished, its leader epoch, and the lag. Each is -1 if it is not known."""

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
    """Return the position of the group in each of its partitions."""
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
    """Set where a group without members begins to read. Return the error code and message of each partition."""
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


#: The names of topics that Kafka Streams creates, as they follow the application id.
_INTERNAL = re.compile(
    r".*-(changelog|repartition|subscription-registration-topic|subscription-response-topic"
    r"|KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-\d+-topic)"
)


async def describe_streams_group(cluster: ClusterClient, group: str) -> DescribedStreamsGroup:
    """Return the group as its coordinator describes it."""
    request = StreamsGroupDescribeRequest([group])
    doing = f"describing streams group {group}"
    found: DescribedStreamsGroup = await ask_about_group(cluster, group, request, doing, first_group)
    check(f"group {group}", found.error_code, found.error_message)
    return found


def subtopologies(group: DescribedStreamsGroup) -> list[Subtopology]:
    return [] if group.topology is None else group.topology.subtopologies or []


def input_topics(group: DescribedStreamsGroup, *, repartitions: bool = False) -> set[str]:
    """Return the topics that the topology reads.

    With `repartitions` the topics are included through which it passes records on.
    """
    names = {topic for part in subtopologies(group) for topic in part.source_topics}
    if repartitions:
        names |= {topic.name for part in subtopologies(group) for topic in part.repartition_source_topics}
    return names


def task_places(group: DescribedStreamsGroup, tasks: Iterable[TaskIds]) -> Iterator[TopicPartition]:
    """Yield the partitions that tasks read."""
    read = {
        part.subtopology_id: [*part.source_topics, *(topic.name for topic in part.repartition_source_topics)]
        for part in subtopologies(group)
    }
    for task in tasks:
        yield from ((topic, index) for topic in read[task.subtopology_id] for index in task.partitions)


def internal_topics(group: DescribedStreamsGroup) -> tuple[list[str], list[str]]:
    """Return the topics that the application has created for itself, and the topology's internal topics with other names."""
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
    """Return the state and the members of a group, whatever its type.

    The members of a streams group have tasks, by subtopology.

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


def _tasks(assignment: StreamsAssignment) -> list[TopicPartition]:
    """Return the active tasks, as pairs of subtopology and partition."""
    return [(task.subtopology_id, index) for task in assignment.active_tasks for index in task.partitions]
