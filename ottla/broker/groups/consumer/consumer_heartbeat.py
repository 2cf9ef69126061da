"""ConsumerGroupHeartbeat: a member joins, changes its subscription, reconciles towards its target, or keeps its session.

A heartbeat is up to four decisions, each appended and replayed before the next: a static member takes the place of its former
process; the member's metadata and the group's epoch; the target of that epoch; the member's next step. Each leaves a state
that the next heartbeat can go on from. Most heartbeats decide nothing and only begin the session again.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from typing import TypeAlias

from ottla.broker.coordinator.outcome import CoordinatorRecord, Outcome
from ottla.broker.groups.consumer.regexes import is_awaited
from ottla.broker.groups.consumer.removal import remove
from ottla.broker.groups.consumer.subscribe import Step, Subscription, subscribe
from ottla.broker.groups.consumer.upgrade import new_group
from ottla.broker.groups.group_metadata_manager import Client, GroupMetadataManager
from ottla.broker.groups.member_sessions import forget
from ottla.broker.groups.modern.assignment import Assignment, assignment_of, structs_of
from ottla.broker.groups.modern.topics import check_subscription
from ottla.broker.groups.modern_heartbeat import check, check_ids, check_size, fenced
from ottla.broker.groups.state.consumer_group import ConsumerGroup
from ottla.broker.groups.state.consumer_member import (
    EMPTY_METADATA,
    CurrentAssignment,
    Member,
    is_subset,
    partitions_of,
)
from ottla.broker.groups.state.group import GroupType
from ottla.broker.groups.state.modern_group import JOINING_EPOCH, LEAVING_EPOCH, STATIC_LEAVING_EPOCH
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.consumer_group_records import ConsumerGroupMemberMetadataValue
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.messages.shared_structs import TopicIdAssignment, TopicIdPartitions

log = logging.getLogger(__name__)

Decision: TypeAlias = Outcome[ConsumerGroupHeartbeatResponse]


def heartbeat(
    shard: GroupMetadataManager, now_ms: int, request: ConsumerGroupHeartbeatRequest, client: Client
) -> Decision:
    validate(request, client.api_version, shard.config.consumer_group_assignors)
    if request.member_epoch < JOINING_EPOCH:
        return _leave(shard, request)
    # In v0 the coordinator generates member ids.
    request.member_id = request.member_id or shard.new_uuid()
    group = shard.find(ConsumerGroup, request.group_id)
    return (
        _beat_first(shard, now_ms, request, client)
        if group is None
        else _beat(shard, now_ms, request, client, group, [])
    )


def _beat_first(
    shard: GroupMetadataManager, now_ms: int, request: ConsumerGroupHeartbeatRequest, client: Client
) -> Decision:
    """Makes a group, of nothing or of a classic one."""
    if request.member_epoch != JOINING_EPOCH:
        shard.group(ConsumerGroup, request.group_id, "Consumer group")
    new = new_group(shard, request.group_id)
    outcome = _beat(shard, now_ms, request, client, new.group, new.records)
    go_on = outcome.then
    assert go_on is not None

    def made() -> Decision:
        new.made()
        return go_on()

    outcome.replies, outcome.then = new.replies, made
    return outcome


def _beat(
    shard: GroupMetadataManager,
    now_ms: int,
    request: ConsumerGroupHeartbeatRequest,
    client: Client,
    group: ConsumerGroup,
    records: list[CoordinatorRecord],
) -> Decision:
    """A heartbeat of a member; `records` make the group, if it is not there yet."""
    is_joining = request.member_epoch == JOINING_EPOCH
    if is_joining:
        check_size(group, request.member_id, shard.config.consumer_group_max_size)
    former = None if request.instance_id is None else _static_member(group, request, request.instance_id, is_joining)
    if former is not None and is_joining:
        return _replace(shard, now_ms, request, client, group, former, records)
    member = group.members.get(request.member_id) if is_joining else group.member(request.member_id)
    if member is not None:
        _validate_epoch(member.current, request)
    return _subscribe(shard, now_ms, request, client, group, records)


def _static_member(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, instance_id: str, is_joining: bool
) -> Member | None:
    """Returns the member with the request's instance id. A joining member may replace it only after it left with epoch -2."""
    holder = group.members.get(group.static_members.get(instance_id, ""))
    if holder is None:
        if is_joining:
            return None
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if is_joining and holder.current.epoch != STATIC_LEAVING_EPOCH and not holder.is_classic:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {request.member_id} with instance id {instance_id} cannot join the group because the"
            f" instance id is owned by {holder.member_id} member.",
        )
    if not is_joining and holder.member_id != request.member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {request.member_id} with instance id {instance_id} was fenced by member {holder.member_id}.",
        )
    return holder


def _validate_epoch(current: CurrentAssignment, request: ConsumerGroupHeartbeatRequest) -> None:
    """The previous epoch is accepted, because the response with the new one may be lost. Epoch 0 is always accepted: it is a rejoin."""
    epoch = request.member_epoch
    if epoch in (current.epoch, JOINING_EPOCH):
        return
    if epoch > current.epoch or epoch != current.previous_epoch or not is_subset(_owned(request), current.assigned):
        raise fenced(GroupType.CONSUMER, epoch, current.epoch)


def _owned(request: ConsumerGroupHeartbeatRequest) -> Assignment | None:
    return None if request.topic_partitions is None else assignment_of(request.topic_partitions)


def _leave(shard: GroupMetadataManager, request: ConsumerGroupHeartbeatRequest) -> Decision:
    """A member leaves for good (epoch -1), or temporarily, which static members do at a restart (epoch -2)."""
    group = shard.group(ConsumerGroup, request.group_id)
    member = _leaving(group, request)
    response = ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)
    if request.member_epoch == STATIC_LEAVING_EPOCH:
        log.info(
            "[GroupId %s] Static Member %s with instance id %s temporarily left the consumer group.",
            group.group_id,
            member.member_id,
            request.instance_id,
        )
        # The static member keeps its assignment until its session expires.
        current = dataclasses.replace(member.current, epoch=STATIC_LEAVING_EPOCH, pending_revocation={})
        return Outcome([group.records.current_record(group.group_id, member.member_id, current)], response)
    log.info("[GroupId %s] Member %s left the consumer group.", group.group_id, member.member_id)
    return remove(shard, group, {member.member_id}, response)


def _leaving(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> Member:
    if request.instance_id is None:
        return group.member(request.member_id)
    holder = group.members.get(group.static_members.get(request.instance_id, ""))
    if holder is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {request.instance_id} is unknown.")
    if holder.member_id != request.member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {request.member_id} with instance id {request.instance_id} was fenced by member"
            f" {holder.member_id}.",
        )
    return holder


# ---- 1: a static member rejoins


def _replace(
    shard: GroupMetadataManager,
    now_ms: int,
    request: ConsumerGroupHeartbeatRequest,
    client: Client,
    group: ConsumerGroup,
    former: Member,
    records: list[CoordinatorRecord],
) -> Decision:
    """The new process of a static member takes over the assignment of the former one at epoch 0."""
    group_id, member_id = group.group_id, request.member_id
    names = {*group.subscribed_topics({}), *(request.subscribed_topic_names or ())}
    shard.cluster.hashes.of_group(shard.cluster.topics(), names)  # before anything is changed: it may have to wait
    records.extend(group.replacement(former, member_id))
    log.info(
        "[GroupId %s] Static member with instance id %s re-joins the consumer group using the consumer protocol."
        " Created a new member %s to replace the existing member %s.",
        group_id,
        request.instance_id,
        member_id,
        former.member_id,
    )

    def replaced() -> Decision:
        forget(shard, group, former.member_id)
        return _subscribe(shard, now_ms, request, client, shard.group(ConsumerGroup, group_id), [])

    return Outcome(records, then=replaced)


# ---- 2 to 4: what the member wants, and its next step


def _subscribe(
    shard: GroupMetadataManager,
    now_ms: int,
    request: ConsumerGroupHeartbeatRequest,
    client: Client,
    group: ConsumerGroup,
    records: list[CoordinatorRecord],
) -> Decision:
    member = group.members.get(request.member_id)
    before = EMPTY_METADATA if member is None else member.metadata
    wanted = Subscription(request.member_id, _updated(before, request, client), _owned(request), client)

    def respond(step: Step) -> Decision:
        current, group = step.member.current, step.group
        interval_ms = shard.cluster.settings_of(group).heartbeat_interval_ms
        expression = step.member.metadata.subscribed_topic_regex
        is_waiting = step.member.current.is_waiting(group.epoch) or bool(
            expression and is_awaited(shard, group, expression)
        )
        response = ConsumerGroupHeartbeatResponse(
            member_id=step.member.member_id,
            member_epoch=current.epoch,
            heartbeat_interval_ms=shard.config.heartbeat_interval_ms(interval_ms, is_waiting=is_waiting),
        )
        given = partitions_of(current.assigned)
        if _is_full(request) or given != step.given_before:
            response.assignment = TopicIdAssignment(structs_of(given, TopicIdPartitions))
        return Outcome(response=response)

    return subscribe(shard, now_ms, group, wanted, records, respond)


def _updated(
    before: ConsumerGroupMemberMetadataValue, request: ConsumerGroupHeartbeatRequest, client: Client
) -> ConsumerGroupMemberMetadataValue:
    """Returns the member with the fields of the request; absent fields keep their values."""
    names = request.subscribed_topic_names
    return ConsumerGroupMemberMetadataValue(
        instance_id=before.instance_id if request.instance_id is None else request.instance_id,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        client_id=client.client_id,
        client_host=client.host,
        subscribed_topic_names=before.subscribed_topic_names if names is None else sorted(set(names)),
        subscribed_topic_regex=(
            before.subscribed_topic_regex if request.subscribed_topic_regex is None else request.subscribed_topic_regex
        ),
        rebalance_timeout_ms=(
            before.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms
        ),
        server_assignor=before.server_assignor if request.server_assignor is None else request.server_assignor,
        classic_member_metadata=None,
    )


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Returns True for a full request, of a member that joins or has missed responses. Its response is full, too."""
    return request.member_epoch == JOINING_EPOCH or (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )


#: From v1 on clients generate their member ids (KIP-1082).
OWN_MEMBER_ID_SINCE = 1


def validate(request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: Sequence[str]) -> None:
    """Raises KafkaError INVALID_REQUEST or UNSUPPORTED_ASSIGNOR."""
    epoch = request.member_epoch
    check_ids(request, has_member_id=api_version >= OWN_MEMBER_ID_SINCE or epoch != JOINING_EPOCH)
    if epoch == JOINING_EPOCH:
        check(request.rebalance_timeout_ms != -1, "RebalanceTimeoutMs must be provided in first request.")
        check(request.topic_partitions == [], "TopicPartitions must be empty when (re-)joining.")
        check(
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        )
    elif epoch == STATIC_LEAVING_EPOCH:
        check(request.instance_id is not None, "InstanceId can't be null.")
    elif epoch < LEAVING_EPOCH:
        check(False, "MemberEpoch is invalid.")
    check_subscription(request.group_id, len(request.subscribed_topic_names or ()))
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )
