"""The next step of a member towards its target, and the response to its StreamsGroupHeartbeat.

First the member closes the tasks that it has to, then it gets those that others closed: a pure function. The member stays in its epoch
until it has closed everything that it must, so that its commits for those tasks are taken. It gets an active task only when no member has
it as one, and any task only when its own process has it in no form: two tasks of one process would lock one state directory.

The response names the internal topics that the broker has to create. Interactive queries: it says which input partitions the members
that have an endpoint work on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.broker.groups.modern.assignment import structs_of, union, without
from ottla.broker.groups.modern.modern_group import JOINING_EPOCH, STABLE, UNKNOWN, UNRELEASED, UNREVOKED, moved
from ottla.broker.groups.streams.streams_group import (
    CurrentAssignment,
    HeldTasks,
    Holdings,
    StreamsGroup,
    StreamsGroupMember,
    TaskSet,
    TasksTuple,
    task_set,
)
from ottla.broker.groups.streams.topology import ConfiguredTopology, StatusCode, inputs
from ottla.controller.metadata.topics import TopicsImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.create_topics import CreatableTopic
from ottla.protocol.messages.shared_structs import Endpoint, TaskIds, TopicNamePartitions
from ottla.protocol.messages.streams_group_heartbeat import (
    EndpointToPartitions,
    Status,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)

IsFree = Callable[[str, int], bool]


def reconciled(
    current: CurrentAssignment,
    target_epoch: int,
    target: TasksTuple,
    is_free_active: IsFree,
    is_free_copy: IsFree,
    owned: TasksTuple | None,
) -> CurrentAssignment:
    """Return the member's next assignment, `current` itself if nothing changes.

    `owned` is what the member says it has, None if its heartbeat does not say. `is_free_active` and `is_free_copy` say whether a task
    may be given to this member: as an active one, or as standby or warm-up.
    """
    epoch = current.epoch
    if current.state is STABLE and epoch == target_epoch:
        return current
    if current.state is UNREVOKED:
        if owned is None or current.pending_revocation.has_any_of(owned):
            return current
        epoch += 1
    elif current.state is UNKNOWN:
        if owned is None or any(owned):
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin.",
            )
        epoch = target_epoch
    following = _following(current, epoch, target_epoch, target, is_free_active, is_free_copy, owned)
    return current if following == current else following


def _following(
    current: CurrentAssignment,
    epoch: int,
    target_epoch: int,
    target: TasksTuple,
    is_free_active: IsFree,
    is_free_copy: IsFree,
    owned: TasksTuple | None,
) -> CurrentAssignment:
    assigned = current.assigned
    kept = Holdings(
        _active_of(assigned.active, target.active, kept=True),
        _both(assigned.standby, target.standby),
        _both(assigned.warmup, target.warmup),
    )
    revoked = Holdings(
        _active_of(assigned.active, target.active, kept=False),
        without(assigned.standby, target.standby),
        without(assigned.warmup, target.warmup),
    )
    if any(revoked) and (owned is None or revoked.has_any_of(owned)):
        return moved(current, UNREVOKED, epoch, assigned=kept, pending_revocation=revoked)
    given, is_complete = _given(target, kept.tasks, is_free_active, is_free_copy)
    active = {subtopology: dict(partitions) for subtopology, partitions in kept.active.items()}
    for subtopology, partitions in given.active.items():
        active.setdefault(subtopology, {}).update(dict.fromkeys(partitions, target_epoch))
    holdings = Holdings(active, union(kept.standby, given.standby), union(kept.warmup, given.warmup))
    state = STABLE if is_complete else UNRELEASED
    return moved(current, state, target_epoch, assigned=holdings, pending_revocation=Holdings())


def _given(
    target: TasksTuple, kept: TasksTuple, is_free_active: IsFree, is_free_copy: IsFree
) -> tuple[TasksTuple, bool]:
    """Return the tasks that the member gets in addition, and whether these are all that it lacks."""
    given = []
    is_complete = True
    for wanted, having, is_free in zip(target, kept, (is_free_active, is_free_copy, is_free_copy), strict=True):
        lacking = without(wanted, having)
        free = {name: frozenset(p for p in partitions if is_free(name, p)) for name, partitions in lacking.items()}
        is_complete = is_complete and free == lacking
        given.append({name: partitions for name, partitions in free.items() if partitions})
    return TasksTuple(*given), is_complete


def _active_of(held: HeldTasks, target: TaskSet, *, kept: bool) -> HeldTasks:
    """Return those of the held tasks that are in the target, or those that are not."""
    found = {
        name: {p: since for p, since in partitions.items() if (p in target.get(name, frozenset())) is kept}
        for name, partitions in held.items()
    }
    return {name: partitions for name, partitions in found.items() if partitions}


def _both(some: TaskSet, others: TaskSet) -> TaskSet:
    return {name: both for name, partitions in some.items() if (both := partitions & others.get(name, frozenset()))}


def partitions_by_endpoint(group: StreamsGroup, topics: TopicsImage) -> list[EndpointToPartitions]:
    """Return one entry for each member that has an endpoint; none as long as the topology has no tasks."""
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
    """Return the partitions that tasks read. A topic may have fewer partitions than its subtopology has tasks."""
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
    member: StreamsGroupMember,
    request: StreamsGroupHeartbeatRequest,
    before: Before,
    statuses: list[Status],
    topics: TopicsImage,
) -> StreamsResult:
    """Return the response. It contains the member's tasks in three cases: the member joins, its tasks have changed, or it
    reports fewer than it has.

    The last case is that of a lost response. Kafka 4.3 does not have it, and the member never takes up the tasks of the lost
    response. While a newer target is due the tasks are not repeated: the member would take them for those of the new target.
    """
    response = StreamsGroupHeartbeatResponse(member_id=member.member_id, member_epoch=member.current.epoch)
    endpoint_epoch = group.endpoint_epoch
    assigned = member.current.assigned
    is_unreported = group.epoch == group.assignment_epoch and _lacks_some(request, assigned.tasks)
    if request.member_epoch == JOINING_EPOCH or assigned != before.assigned or is_unreported:
        structs = (structs_of(each, TaskIds) for each in assigned.tasks)
        response.active_tasks, response.standby_tasks, response.warmup_tasks = structs
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


def _lacks_some(request: StreamsGroupHeartbeatRequest, assigned: TasksTuple) -> bool:
    """Return whether the member reports fewer tasks than it is assigned, and none besides: a member that still has to close
    tasks would report these.
    """
    lacks = False
    for said, mine in zip((request.active_tasks, request.standby_tasks, request.warmup_tasks), assigned, strict=True):
        owned = None if said is None else task_set(said)
        if owned is None or any(not partitions <= mine.get(name, frozenset()) for name, partitions in owned.items()):
            return False
        lacks = lacks or owned != mine
    return lacks
