"""What is wrong with a StreamsGroupHeartbeat whatever group it is for: first what Kafka 4.3.1 does not serve, then what contradicts itself."""

from __future__ import annotations

from ottla.broker.groups.modern_heartbeat import check, check_ids
from ottla.broker.groups.state.modern_group import JOINING_EPOCH, STATIC_LEAVING_EPOCH
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Topology


def validate(request: StreamsGroupHeartbeatRequest) -> None:
    """KafkaError INVALID_REQUEST or STREAMS_INVALID_TOPOLOGY."""
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


def _check_changelogs(topology: Topology) -> None:
    for subtopology in topology.subtopologies:
        for topic in subtopology.state_changelog_topics:
            if topic.partitions:
                raise KafkaError(
                    ErrorCode.STREAMS_INVALID_TOPOLOGY,
                    f"Changelog topic {topic.name} must have an undefined partition count, but it is set to"
                    f" {topic.partitions}.",
                )
