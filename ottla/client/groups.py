"""Administration of consumer groups, of the classic and of the new protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ottla.client.cluster import ClusterClient, ask_about_group, first_group
from ottla.client.errors import check, failure
from ottla.client.partitions import TopicPartition
from ottla.protocol.errors import ErrorCode, ProtocolError
from ottla.protocol.internal_topics.control_messages import ConsumerProtocolAssignment, decode_versioned
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from ottla.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestTopic
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.protocol.messages.shared_structs import Assignment, PartitionIndex

# The last versions that name topics; later ones have ids only, which a group's topic may no longer have.
OFFSET_FETCH_VERSION = 9
OFFSET_COMMIT_VERSION = 9
NO_GENERATION = -1
#: States of a classic group in which DescribeGroups leaves out what members have said.
REBALANCING = ("PreparingRebalance", "CompletingRebalance")


@dataclass(slots=True)
class GroupMember:
    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    assigned: list[TopicPartition] = field(default_factory=list)
    #: Set by the consumer protocol only: the member's epoch, and the partitions that it is to have.
    epoch: int = -1
    target: list[TopicPartition] = field(default_factory=list)


class GroupPosition(NamedTuple):
    """A committed offset, and the leader epoch that was committed with it: -1 if none was."""

    offset: int
    leader_epoch: int


@dataclass(slots=True)
class GroupDescription:
    group: str
    state: str
    type: str
    assignor: str
    members: list[GroupMember] = field(default_factory=list)
    #: Set by the consumer protocol only: the epochs of the group and of its target assignment.
    epoch: int = -1
    target_epoch: int = -1


async def list_groups(cluster: ClusterClient) -> list[ListedGroup]:
    """Every broker knows the groups that it coordinates."""
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
    """Return classic, consumer, share or streams.

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
    """Return state and members; if there is no such group, the failure suggests names."""
    if await kind_of(cluster, group) == "consumer":
        return await _describe_consumer(cluster, group)
    return await _describe_classic(cluster, group)


async def members_metadata(cluster: ClusterClient, group: str) -> list[bytes] | None:
    """Return what the members of a classic group have said of themselves; None while the group is in a rebalance."""
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
    """Return a member of a consumer or streams group, by what its assignments hold."""
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


async def committed_offsets(cluster: ClusterClient, group: str, *, stable: bool = False) -> dict[TopicPartition, int]:
    """Return all committed offsets of the group; `stable`: wait for those of open transactions (KIP-447)."""
    return {place: position.offset for place, position in (await committed_positions(cluster, group, stable)).items()}


async def committed_positions(
    cluster: ClusterClient, group: str, stable: bool = False
) -> dict[TopicPartition, GroupPosition]:
    """Return all committed offsets of the group, with their leader epochs."""
    wanted = [OffsetFetchRequestGroup(group_id=group, topics=None)]
    request = OffsetFetchRequest(groups=wanted, require_stable=stable)
    doing = f"fetching the offsets of group {group}"
    found = await ask_about_group(cluster, group, request, doing, first_group, version=OFFSET_FETCH_VERSION)
    check(f"group {group}", found.error_code)
    rows = [(topic.name, part) for topic in found.topics for part in topic.partitions]
    return {
        (name, part.partition_index): GroupPosition(part.committed_offset, part.committed_leader_epoch)
        for name, part in rows
        if part.committed_offset >= 0
    }


async def commit_offsets(
    cluster: ClusterClient,
    group: str,
    offsets: Mapping[TopicPartition, int],
    generation: int = NO_GENERATION,
    member_id: str = "",
) -> None:
    """Set offsets: as a member of the generation, or from outside, which the coordinator refuses while the group has members."""
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for (name, index), offset in sorted(offsets.items()):
        row = OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        topics.setdefault(name, OffsetCommitRequestTopic(name=name, partitions=[])).partitions.append(row)
    request = OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=generation, member_id=member_id, topics=list(topics.values())
    )
    doing = f"setting the offsets of group {group}"
    failed = await ask_about_group(cluster, group, request, doing, _first_failed, version=OFFSET_COMMIT_VERSION)
    check(f"group {group}, partition {failed.topic}-{failed.partition}", failed.error_code)


class _Committed(NamedTuple):
    topic: str
    partition: int
    error_code: int


def _first_failed(response: OffsetCommitResponse) -> _Committed:
    """Return the first partition with an error: a coordinator that has moved refuses all of them alike."""
    rows = (
        _Committed(topic.name, row.partition_index, row.error_code)
        for topic in response.topics
        for row in topic.partitions
    )
    return next((row for row in rows if row.error_code), _Committed("", -1, ErrorCode.NONE))


async def delete_offsets(
    cluster: ClusterClient, group: str, places: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Delete the offsets of partitions; return an error code per partition, 0 for those that are deleted.

    Raises:
        CommandFailed: nothing was deleted.
    """
    topics: dict[str, OffsetDeleteRequestTopic] = {}
    for name, index in places:
        topic = topics.setdefault(name, OffsetDeleteRequestTopic(name=name, partitions=[]))
        topic.partitions.append(PartitionIndex(partition_index=index))
    request = OffsetDeleteRequest(group_id=group, topics=list(topics.values()))
    response = await ask_about_group(cluster, group, request, f"deleting offsets of group {group}")
    check(f"group {group}", response.error_code)
    return {
        (topic.name, part.partition_index): part.error_code for topic in response.topics for part in topic.partitions
    }


async def delete_groups(cluster: ClusterClient, groups: Iterable[str]) -> None:
    for group in groups:
        request, doing = DeleteGroupsRequest(groups_names=[group]), f"deleting group {group}"
        result = await ask_about_group(cluster, group, request, doing, lambda response: response.results[0])
        if result.error_code:
            known = [found.group_id for found in await list_groups(cluster)]
            raise failure(f"group {group}", result.error_code, result.error_message, name=group, known=known)
