"""StreamsGroupHeartbeat: a member joins with its topology, takes a step towards its target, or keeps its session.

The decisions are those of each kind (heartbeats.py). Everything that is wrong with a request is found before the first of them.
"""

from __future__ import annotations

import logging
from functools import partial
from itertools import chain
from typing import TypeAlias

from ottla.broker.coordinator.outcome import CoordinatorRecord, Outcome, Unasked
from ottla.broker.groups import heartbeats
from ottla.broker.groups.classic.classic_group import ClassicGroup
from ottla.broker.groups.group import GroupType
from ottla.broker.groups.group_metadata_manager import Client, GroupMetadataManager
from ottla.broker.groups.heartbeats import (
    Beat,
    bump_epoch,
    check,
    check_ids,
    check_size,
    fenced,
    keep_alive,
    remove,
)
from ottla.broker.groups.modern.assignment import is_subset
from ottla.broker.groups.modern.modern_group import JOINING_EPOCH, STATIC_LEAVING_EPOCH
from ottla.broker.groups.streams.assignor import STANDBY_REPLICAS, plan
from ottla.broker.groups.streams.streams_group import (
    NEW_METADATA,
    RECORDS,
    CurrentAssignment,
    Holdings,
    StreamsGroup,
    TasksTuple,
    group_record,
    task_set,
)
from ottla.broker.groups.streams.streams_step import Before, StreamsResult, reconciled, response_to
from ottla.broker.groups.streams.topology import ConfiguredTopology, StatusCode, Topology, configured, recorded
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.group_records import StreamsGroupMemberMetadataValue, StreamsGroupTopologyKey
from ottla.protocol.messages import streams_group_heartbeat as messages
from ottla.protocol.messages.shared_structs import Endpoint, KeyValue
from ottla.protocol.messages.streams_group_heartbeat import (
    Status,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)

log = logging.getLogger(__name__)

Decision: TypeAlias = Outcome[StreamsResult]
StreamsBeat: TypeAlias = Beat[StreamsGroupHeartbeatRequest]


def heartbeat(
    shard: GroupMetadataManager, now_ms: int, request: StreamsGroupHeartbeatRequest, client: Client
) -> Decision:
    validate(request)
    if request.member_epoch < JOINING_EPOCH:
        return _leave(shard, request)
    records: list[CoordinatorRecord] = []
    group = shard.find(StreamsGroup, request.group_id)
    if group is None:
        records = _place_for_a_group(shard, request)
        group = StreamsGroup(request.group_id)
    if request.member_epoch == JOINING_EPOCH:
        check_size(group, request.member_id, shard.config.streams_group_max_size)
    else:
        _validate_epoch(group.member(request.member_id).current, request)
    return _update(Beat(shard, now_ms, request, client), group, records)


def _place_for_a_group(shard: GroupMetadataManager, request: StreamsGroupHeartbeatRequest) -> list[CoordinatorRecord]:
    """Return the records that free the group's id: a classic group without members gives it up, and its offsets stay."""
    group_id = request.group_id
    if request.member_epoch != JOINING_EPOCH:
        shard.group(StreamsGroup, group_id, "Streams group")
    classic = shard.find(ClassicGroup, group_id)
    if classic is not None and classic.is_empty:
        return [*classic.tombstones()]
    shard.check_place_for(StreamsGroup, group_id)
    return []


def _validate_epoch(current: CurrentAssignment, request: StreamsGroupHeartbeatRequest) -> None:
    """The previous epoch is accepted once more: the response with the new one may be lost."""
    epoch = request.member_epoch
    if epoch == current.epoch:
        return
    owned = _owned(request)
    is_repeated = epoch == current.previous_epoch and owned is not None
    if epoch > current.epoch or not (
        is_repeated and all(map(is_subset, owned or TasksTuple(), current.assigned.tasks))
    ):
        raise fenced(GroupType.STREAMS, epoch, current.epoch)


def _owned(request: StreamsGroupHeartbeatRequest) -> TasksTuple | None:
    tasks = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    return None if any(each is None for each in tasks) else TasksTuple(*(task_set(each or ()) for each in tasks))


def _leave(shard: GroupMetadataManager, request: StreamsGroupHeartbeatRequest) -> Decision:
    """Remove a member that leaves. Its tasks go to others with the group's next epoch."""
    group_id, member_id = request.group_id, request.member_id
    group = shard.group(StreamsGroup, group_id)
    if request.shutdown_application and group.members:
        # A member whose session has ended meanwhile may request it, too. A group without members has no application to shut down.
        group.request_shutdown(member_id)
    group.member(member_id)
    shard.story(group_id, log).info("[GroupId %s] Member %s left the streams group.", group_id, member_id)

    response = StreamsGroupHeartbeatResponse(member_id=member_id, member_epoch=request.member_epoch)
    return remove(shard, group, {member_id}, StreamsResult(response))


# ---- 1: the member, the topology, and the group's epoch


def _update(beat: StreamsBeat, group: StreamsGroup, records: list[CoordinatorRecord]) -> Decision:
    """Take the member's new subscription; `group` is not the shard's yet if this is its first member."""
    shard, _, request, client = beat
    group_id, member_id = request.group_id, request.member_id
    member = group.members.get(member_id)
    metadata = _updated(NEW_METADATA if member is None else member.metadata, request, client)
    is_new_epoch = member is None or metadata != member.metadata
    if is_new_epoch:
        records.append(RECORDS.member_record(group_id, member_id, metadata))
    topology = _topology(shard, group, request, records)
    topics = shard.cluster.topics()
    hash_, configured_topology = group.metadata_hash, group.configured
    if group.topology is None or configured_topology is None or group.seen_topics is not topics:
        hash_ = shard.cluster.hashes.of_group(topics, topology.required_topics)
        if group.topology is None or configured_topology is None or hash_ != group.metadata_hash:
            configured_topology = configured(topology, topics)
            is_new_epoch = is_new_epoch or hash_ != group.metadata_hash
    assert configured_topology is not None
    _check_tasks(configured_topology, request)
    validated_epoch = topology.epoch if configured_topology.is_ready else -1
    configs = {STANDBY_REPLICAS: str(shard.cluster.settings_of(group).standby_replicas)}
    if is_new_epoch or validated_epoch != group.validated_topology_epoch or configs != group.assignment_configs:
        next_epoch = group_record(group_id, group.epoch + 1, hash_, validated_epoch, configs)
        records.append(bump_epoch(shard, group, next_epoch))
    statuses = []
    if group.topology is not None and metadata.topology_epoch < group.topology.epoch:
        text = f"The member's topology epoch {metadata.topology_epoch} is behind the group's topology epoch {topology.epoch}."
        statuses.append(Status(StatusCode.STALE_TOPOLOGY, text))
    before = Before(
        is_new_group=shard.find(StreamsGroup, group_id) is None,
        assigned=Holdings() if member is None else member.current.assigned,
    )
    is_first = not group.members

    def updated() -> Decision:
        known = shard.group(StreamsGroup, group_id)
        known.configured, known.seen_topics = configured_topology, topics
        if is_first:
            _delay_first_assignment(shard, known)
        if request.shutdown_application:
            known.request_shutdown(member_id)
        return _assign(beat, known, before, statuses)

    return Outcome(records, then=updated)


def _updated(
    before: StreamsGroupMemberMetadataValue, request: StreamsGroupHeartbeatRequest, client: Client
) -> StreamsGroupMemberMetadataValue:
    """Return the member with the request's fields. A field that the request leaves out stays as it was."""
    endpoint, tags, topology = request.user_endpoint, request.client_tags, request.topology
    if tags is not None and len({tag.key for tag in tags}) < len(tags):
        # Kafka fails with an unexpected exception of its own (4.3.1).
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    timeout_ms = request.rebalance_timeout_ms
    return StreamsGroupMemberMetadataValue(
        instance_id=None,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        client_id=client.client_id,
        client_host=client.host,
        rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topology_epoch=before.topology_epoch if topology is None else topology.epoch,
        process_id=before.process_id if request.process_id is None else request.process_id,
        user_endpoint=before.user_endpoint if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        client_tags=before.client_tags
        if tags is None
        else [KeyValue(tag.key, tag.value) for tag in sorted(tags, key=lambda tag: tag.key)],
    )


def _topology(
    shard: GroupMetadataManager,
    group: StreamsGroup,
    request: StreamsGroupHeartbeatRequest,
    records: list[CoordinatorRecord],
) -> Topology:
    """Return the group's topology, which is the first member's. The topology of a later member has to be equal, or of an
    earlier epoch.
    """
    if request.topology is None:
        if group.topology is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR, "The topology is null and the group topology is also null."
            )
        return group.topology
    value = recorded(request.topology)
    if group.topology is None:
        records.append((StreamsGroupTopologyKey(group.group_id), value))
        shard.story(group.group_id, log).info(
            "[GroupId %s] Member %s initialized the topology with epoch %d",
            group.group_id,
            request.member_id,
            value.epoch,
        )
        return Topology(value)
    is_behind = value.epoch < group.topology.epoch
    check(is_behind or group.topology.has_same_content(value), "Topology updates are not supported yet.")
    return group.topology


def _check_tasks(topology: ConfiguredTopology, request: StreamsGroupHeartbeatRequest) -> None:
    """The member's tasks have to be in the topology, once it is ready."""
    if not topology.is_ready:
        return
    for task in chain(request.active_tasks or (), request.standby_tasks or (), request.warmup_tasks or ()):
        name, subtopology = task.subtopology_id, (topology.subtopologies or {}).get(task.subtopology_id)
        tasks = 0 if subtopology is None else subtopology.tasks
        check(subtopology is not None, f"Subtopology {name} does not exist in the topology.")
        for partition in task.partitions:
            check(
                0 <= partition < tasks,
                f"Task {partition} for subtopology {name} is invalid. Number of tasks for this subtopology: {tasks}",
            )


# ---- 2: the target


def _delay_key(group_id: str) -> tuple[str, str]:
    return "streams-initial-rebalance", group_id


def _delay_first_assignment(shard: GroupMetadataManager, group: StreamsGroup) -> None:
    """The first member of a group waits before its first assignment, because applications start many threads, and so members, at once."""
    delay_ms = shard.cluster.settings_of(group).initial_rebalance_delay_ms
    key = _delay_key(group.group_id)
    if delay_ms > 0 and key not in shard.timers:
        shard.timers.schedule(key, delay_ms, partial(_assign_unasked, shard, group.group_id))


def _assign_unasked(shard: GroupMetadataManager, group_id: str) -> Unasked:
    group, now_ms = shard.find(StreamsGroup, group_id), shard.wall_ms()
    is_wanted = group is not None and group.members and group.configured is not None
    if group is None or not is_wanted or _is_too_early(shard, now_ms, group):
        return Outcome()
    return heartbeats.assign(shard, now_ms, group, plan, Outcome) if group.epoch > group.assignment_epoch else Outcome()


def _is_too_early(shard: GroupMetadataManager, now_ms: int, group: StreamsGroup) -> bool:
    """Many members may join at once (KIP-1263); a group without a former target need not wait."""
    return bool(group.assignment_timestamp_ms) and heartbeats.is_in_interval(shard, now_ms, group)


def _assign(beat: StreamsBeat, group: StreamsGroup, before: Before, statuses: list[Status]) -> Decision:
    shard, now_ms, _, _ = beat
    is_waiting = _delay_key(group.group_id) in shard.timers
    step = partial(_step, beat, group, before, statuses, is_waiting)
    why_not = "initial rebalance delay" if is_waiting else None
    if not is_waiting and group.epoch > group.assignment_epoch:
        if not _is_too_early(shard, now_ms, group):
            return heartbeats.assign(shard, now_ms, group, plan, step)
        why_not = "assignment interval"
    if why_not is not None:
        text = f"Assignment delayed due to the configured {why_not}."
        statuses.append(Status(StatusCode.ASSIGNMENT_DELAYED, text))
    return step()


# ---- 3: the member's next step


def _step(beat: StreamsBeat, group: StreamsGroup, before: Before, statuses: list[Status], is_waiting: bool) -> Decision:
    """Return the member's next step. While a group waits for its first assignment, a former one does not count."""
    shard, _, request, _ = beat
    member = group.members[request.member_id]
    process_id = member.metadata.process_id
    current = reconciled(
        member.current,
        group.assignment_epoch,
        TasksTuple() if is_waiting else group.target(member.member_id),
        partial(group.is_free_active, process_id),
        partial(group.is_free_copy, process_id),
        _owned(request),
    )
    has_moved = current is not member.current
    records = [RECORDS.current_record(group.group_id, member.member_id, current)] if has_moved else []

    def stepped() -> Decision:
        keep_alive(shard, group, member, has_moved=has_moved)
        found = response_to(group, member, request, before, statuses, shard.cluster.topics())
        settings = shard.cluster.settings_of(group)
        found.response.heartbeat_interval_ms = shard.config.heartbeat_interval_ms(
            settings.heartbeat_interval_ms, is_waiting=member.current.is_waiting(group.epoch)
        )
        return Outcome(response=found)

    return Outcome(records, then=stepped)


# ---- the form of a request


def validate(request: StreamsGroupHeartbeatRequest) -> None:
    """Refuse fields that Kafka 4.3.1 does not serve, then those that contradict each other: INVALID_REQUEST or STREAMS_INVALID_TOPOLOGY."""
    _check_supported(request)
    check_ids(request)
    if request.member_epoch == JOINING_EPOCH:
        _check_joining(request)
    elif request.member_epoch == STATIC_LEAVING_EPOCH:
        check(request.instance_id is not None, "InstanceId can't be null.")
    elif request.member_epoch < STATIC_LEAVING_EPOCH:
        check(False, f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to -2.")
    tasks = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if any(each is not None for each in tasks):
        check(all(each is not None for each in tasks), "If one task-type is non-null, all must be non-null.")
    if request.member_epoch != JOINING_EPOCH:
        check(request.topology is None, "Topology can only be provided when (re-)joining.")


def _check_supported(request: StreamsGroupHeartbeatRequest) -> None:
    check(request.instance_id is None, "Static membership is not yet supported.")
    check(request.task_offsets is None, "TaskOffsets are not supported yet.")
    check(request.task_end_offsets is None, "TaskEndOffsets are not supported yet.")
    check(not request.warmup_tasks, "WarmupTasks are not supported yet.")
    for subtopology in () if request.topology is None else request.topology.subtopologies:
        check(not subtopology.source_topic_regex, "Regular expressions for source topics are not supported yet.")


def _check_joining(request: StreamsGroupHeartbeatRequest) -> None:
    check(request.rebalance_timeout_ms != -1, "RebalanceTimeoutMs must be provided in first request.")
    check(request.active_tasks == [], "ActiveTasks must be empty when (re-)joining.")
    check(request.standby_tasks == [], "StandbyTasks must be empty when (re-)joining.")
    check(request.warmup_tasks == [], "WarmupTasks must be empty when (re-)joining.")
    check(request.topology is not None, "Topology must be non-null when (re-)joining.")
    if request.topology is not None:
        _check_changelogs(request.topology)


def _check_changelogs(topology: messages.Topology) -> None:
    for subtopology in topology.subtopologies:
        for topic in subtopology.state_changelog_topics:
            if topic.partitions:
                raise KafkaError(
                    ErrorCode.STREAMS_INVALID_TOPOLOGY,
                    f"Changelog topic {topic.name} must have an undefined partition count, but it is set to"
                    f" {topic.partitions}.",
                )
