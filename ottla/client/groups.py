"""Administration of consumer groups, of the classic and of the new protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from ottla.client.cluster import ClusterClient, ask_about_group, first_group
from ottla.client.errors import check, failure
from ottla.client.partitions import TopicPartition
from ottla.protocol.errors import ErrorCode, ProtocolError
from ottla.protocol.internal_topics.control_messages import ConsumerProtocolAssignment, decode_versioned
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from ottla.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.protocol.messages.shared_structs import Assignment

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


async def delete_groups(cluster: ClusterClient, groups: Iterable[str]) -> None:
    for group in groups:
        request, doing = DeleteGroupsRequest(groups_names=[group]), f"deleting group {group}"
        result = await ask_about_group(cluster, group, request, doing, lambda response: response.results[0])
        if result.error_code:
            known = [found.group_id for found in await list_groups(cluster)]
            raise failure(f"group {group}", result.error_code, result.error_message, name=group, known=known)
