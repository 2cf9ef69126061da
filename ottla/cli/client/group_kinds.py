"""Groups of all four kinds by one call: classic, consumer (KIP-848), share (KIP-932) and streams (KIP-1071)."""

from __future__ import annotations

from ottla.cli.client.cluster import ClusterClient
from ottla.cli.client.failures import check, failure
from ottla.cli.client.groups import GroupDescription, GroupMember, describe_group, list_groups
from ottla.cli.client.leaders import TopicPartition
from ottla.cli.client.share_groups import describe_share_group
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.streams_group_describe import Assignment, StreamsGroupDescribeRequest

SHARE, STREAMS = "share", "streams"


async def kind_of(cluster: ClusterClient, group: str) -> str:
    """Return classic, consumer, share or streams.

    Raises:
        CommandFailed: there is no such group; the failure suggests names.
    """
    node = await cluster.coordinator(group)
    cluster.doing = f"describing group {group}"
    for found in (await cluster.request(ListGroupsRequest(), node)).groups:
        if found.group_id == group:
            return found.group_type.lower() or "classic"
    known = [found.group_id for found in await list_groups(cluster)]
    raise failure(f"group {group}", ErrorCode.GROUP_ID_NOT_FOUND, name=group, known=known)


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
    node = await cluster.coordinator(group)
    cluster.doing = f"describing streams group {group}"
    found = (await cluster.request(StreamsGroupDescribeRequest([group]), node)).groups[0]
    check(f"group {group}", found.error_code, found.error_message)
    members = [
        GroupMember(
            row.member_id,
            row.client_id,
            row.client_host,
            row.instance_id,
            _tasks(row.assignment),
            row.member_epoch,
            _tasks(row.target_assignment),
        )
        for row in found.members
    ]
    assignor = found.assignor_name or ""
    return GroupDescription(
        group, found.group_state, STREAMS, assignor, members, found.group_epoch, found.assignment_epoch
    )


def _tasks(assignment: Assignment) -> list[TopicPartition]:
    """Returns the active tasks: subtopology and partition."""
    return [(task.subtopology_id, index) for task in assignment.active_tasks for index in task.partitions]
