"""Groups of all four kinds by one call: classic, consumer (KIP-848), share (KIP-932) and streams (KIP-1071)."""

from __future__ import annotations

from ottla.client.cluster import ClusterClient
from ottla.client.groups import GroupDescription, GroupMember, describe_group, kind_of
from ottla.client.leaders import TopicPartition
from ottla.client.share_groups import describe_share_group
from ottla.client.streams_groups import describe_streams_group
from ottla.protocol.messages.streams_group_describe import Assignment

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
    """Return the active tasks: subtopology and partition."""
    return [(task.subtopology_id, index) for task in assignment.active_tasks for index in task.partitions]
