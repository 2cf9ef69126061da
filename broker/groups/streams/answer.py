"""What a StreamsGroupHeartbeat is answered with, and the internal topics that the broker has to create."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.broker.groups.streams.configured import StatusCode
from ottla.broker.groups.streams.endpoints import partitions_by_endpoint
from ottla.broker.groups.streams.group import StreamsGroup
from ottla.broker.groups.streams.member import JOINING_EPOCH, Member
from ottla.broker.groups.streams.tasks import Holdings, structs_of
from ottla.controller.metadata.topics import TopicsImage
from ottla.protocol.messages.create_topics import CreatableTopic
from ottla.protocol.messages.streams_group_heartbeat import (
    Status,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
)

NOTHING_MISSING: Mapping[str, CreatableTopic] = {}


class StreamsAnswer(NamedTuple):
    response: StreamsGroupHeartbeatResponse
    missing: Mapping[str, CreatableTopic] = NOTHING_MISSING


class Before(NamedTuple):
    """What an answer compares the member and its group with."""

    is_new_group: bool
    assigned: Holdings


def answer(
    group: StreamsGroup,
    member: Member,
    request: StreamsGroupHeartbeatRequest,
    before: Before,
    statuses: list[Status],
    topics: TopicsImage,
) -> StreamsAnswer:
    """Tasks are in the answer when the member joins, or has got or lost some."""
    response = StreamsGroupHeartbeatResponse(member_id=member.member_id, member_epoch=member.current.epoch)
    endpoint_epoch = group.endpoint_epoch
    if request.member_epoch == JOINING_EPOCH or member.current.assigned != before.assigned:
        tasks = member.current.assigned.tasks
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
    return StreamsAnswer(response, configured.missing)
