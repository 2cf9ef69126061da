"""The response to a StreamsGroupHeartbeat, and the internal topics that the broker has to create.

Interactive queries: the response says which input partitions the members that have an endpoint work on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.broker.groups.state.configured import ConfiguredTopology, StatusCode
from ottla.broker.groups.state.modern_group import JOINING_EPOCH
from ottla.broker.groups.state.streams_group import StreamsGroup
from ottla.broker.groups.state.streams_member import Holdings, Member, Tasks, TaskSet, structs_of, task_set
from ottla.broker.groups.state.topology import inputs
from ottla.controller.metadata.topics import TopicsImage
from ottla.protocol.messages.create_topics import CreatableTopic
from ottla.protocol.messages.shared_structs import Endpoint, TaskIds, TopicNamePartitions
from ottla.protocol.messages.streams_group_heartbeat import (
    EndpointToPartitions,
    Status,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)


def partitions_by_endpoint(group: StreamsGroup, topics: TopicsImage) -> list[EndpointToPartitions]:
    """One entry for each member that has an endpoint; none as long as the topology has no tasks."""
    configured = group.configured
    if configured is None or configured.subtopologies is None:
        return []
    found = []
    for member in group.members.values():
        endpoint = member.metadata.user_endpoint
        if endpoint is not None:
            tasks = member.current.assigned.tasks
            found.append(
                EndpointToPartitions(
                    Endpoint(endpoint.host, endpoint.port),
                    _partitions(tasks.active, configured, topics),
                    _partitions(tasks.standby, configured, topics),
                )
            )
    return found


def _partitions(tasks: TaskSet, configured: ConfiguredTopology, topics: TopicsImage) -> list[TopicNamePartitions]:
    """A topic may have fewer partitions than its subtopology has tasks."""
    found = []
    for subtopology_id in sorted(tasks):
        known = (configured.subtopologies or {}).get(subtopology_id)
        for name in dict.fromkeys(inputs(known.subtopology)) if known is not None else ():
            topic = topics.by_name(name)
            if topic is not None:
                there = [partition for partition in sorted(tasks[subtopology_id]) if partition in topic.partitions]
                found.append(TopicNamePartitions(name, there))
    return found


NOTHING_MISSING: Mapping[str, CreatableTopic] = {}


class StreamsResult(NamedTuple):
    response: StreamsGroupHeartbeatResponse
    missing: Mapping[str, CreatableTopic] = NOTHING_MISSING


class Before(NamedTuple):
    """The member and its group before the heartbeat."""

    is_new_group: bool
    assigned: Holdings


def response_to(
    group: StreamsGroup,
    member: Member,
    request: StreamsGroupHeartbeatRequest,
    before: Before,
    statuses: list[Status],
    topics: TopicsImage,
) -> StreamsResult:
    """Tasks are in the response when the member joins, has got or lost some, or names fewer than it has.

    The last case is that of a lost response. Kafka 4.3 leaves it out, and the member never takes up what that response gave it.
    """
    response = StreamsGroupHeartbeatResponse(member_id=member.member_id, member_epoch=member.current.epoch)
    endpoint_epoch = group.endpoint_epoch
    assigned = member.current.assigned
    if request.member_epoch == JOINING_EPOCH or assigned != before.assigned or _lacks_some(request, assigned.tasks):
        tasks = assigned.tasks
        response.active_tasks = structs_of(tasks.active, TaskIds)
        response.standby_tasks = structs_of(tasks.standby, TaskIds)
        response.warmup_tasks = structs_of(tasks.warmup, TaskIds)
        endpoint_epoch += member.metadata.user_endpoint is not None
    if not before.is_new_group:
        # The heartbeat that makes a group leaves its endpoint epoch at 0, as in Kafka: the member asks once more.
        group.endpoint_epoch = endpoint_epoch
    if endpoint_epoch != request.endpoint_information_epoch:
        response.partitions_by_user_endpoint = partitions_by_endpoint(group, topics)
    response.endpoint_information_epoch = group.endpoint_epoch
    configured = group.configured
    assert configured is not None
    if configured.status is not None:
        statuses.append(Status(configured.status.status_code, configured.status.status_detail))
    if group.shutdown_requested_by is not None:
        statuses.append(
            Status(
                StatusCode.SHUTDOWN_APPLICATION,
                f"Streams group member {group.shutdown_requested_by} encountered a fatal error and requested a shutdown for"
                " the entire application.",
            )
        )
    response.status = statuses
    return StreamsResult(response, configured.missing)


def _lacks_some(request: StreamsGroupHeartbeatRequest, assigned: Tasks) -> bool:
    """The member has nothing else, so it is not one that has yet to close tasks."""
    lacks = False
    for said, mine in zip((request.active_tasks, request.standby_tasks, request.warmup_tasks), assigned, strict=True):
        owned = None if said is None else task_set(said)
        if owned is None or any(not partitions <= mine.get(name, frozenset()) for name, partitions in owned.items()):
            return False
        lacks = lacks or owned != mine
    return lacks
