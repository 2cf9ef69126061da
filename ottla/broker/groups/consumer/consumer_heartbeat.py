"""ConsumerGroupHeartbeat: a member joins, changes its subscription, reconciles towards its target, or keeps its session.

The decisions are those of each kind (member_sessions.py); a static member that takes the place of its former process does so first.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from typing import TypeAlias

from ottla.broker.coordinator.outcome import CoordinatorRecord, Outcome
from ottla.broker.groups.consumer import regexes
from ottla.broker.groups.consumer.classic_members import new_group
from ottla.broker.groups.consumer.consumer_group import (
    EMPTY_METADATA,
    ConsumerGroup,
    ConsumerGroupMember,
    CurrentAssignment,
)
from ottla.broker.groups.consumer.subscribe import Step, subscribe
from ottla.broker.groups.group import GroupType
from ottla.broker.groups.group_metadata_manager import Client, GroupMetadataManager
from ottla.broker.groups.member_sessions import Beat, check, check_ids, check_size, fenced, forget, remove
from ottla.broker.groups.modern.assignment import Assignment, assignment_of, is_subset, partitions_of, structs_of
from ottla.broker.groups.modern.modern_group import JOINING_EPOCH, LEAVING_EPOCH, STATIC_LEAVING_EPOCH
from ottla.broker.groups.modern.topics import check_subscription
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.group_records import ConsumerGroupMemberMetadataValue
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.messages.shared_structs import TopicIdAssignment, TopicIdPartitions

log = logging.getLogger(__name__)

Decision: TypeAlias = Outcome[ConsumerGroupHeartbeatResponse]
ConsumerBeat: TypeAlias = Beat[ConsumerGroupHeartbeatRequest]


def heartbeat(
    shard: GroupMetadataManager, now_ms: int, request: ConsumerGroupHeartbeatRequest, client: Client
) -> Decision:
    validate(request, client.api_version, shard.config.consumer_group_assignors)
    if request.member_epoch < JOINING_EPOCH:
        return _leave(shard, request)
    # In v0 the coordinator generates member ids.
    request.member_id = request.member_id or shard.new_uuid()
    beat = Beat(shard, now_ms, request, client)
    group = shard.find(ConsumerGroup, request.group_id)
    return _beat_first(beat) if group is None else _beat(beat, group, [])


def _beat_first(beat: ConsumerBeat) -> Decision:
    """Make a group, of nothing or of a classic one."""
    shard, request = beat.shard, beat.request
    if request.member_epoch != JOINING_EPOCH:
        shard.group(ConsumerGroup, request.group_id, "Consumer group")
    new = new_group(shard, request.group_id)
    outcome = _beat(beat, new.group, new.records)
    go_on = outcome.then
    assert go_on is not None

    def made() -> Decision:
        new.made()
        return go_on()

    outcome.replies, outcome.then = new.replies, made
    return outcome


def _beat(beat: ConsumerBeat, group: ConsumerGroup, records: list[CoordinatorRecord]) -> Decision:
    """A heartbeat of a member; `records` make the group, if it is not there yet."""
    request = beat.request
    if request.member_epoch == JOINING_EPOCH:
        check_size(group, request.member_id, beat.shard.config.consumer_group_max_size)
        former = _former_process(group, request)
        if former is not None:
            return _replace(beat, group, former, records)
    else:
        if request.instance_id is not None:
            group.static_member(request.instance_id, request.member_id)
        _validate_epoch(group.member(request.member_id).current, request)
    return _subscribe(beat, group, records)


def _former_process(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupMember | None:
    """Return the member with the request's instance id, which a joining one may replace only after it left with epoch -2."""
    instance_id = request.instance_id
    holder = None if instance_id is None else group.members.get(group.static_members.get(instance_id, ""))
    if holder is not None and holder.current.epoch != STATIC_LEAVING_EPOCH and not holder.is_classic:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {request.member_id} with instance id {instance_id} cannot join the group because the"
            f" instance id is owned by {holder.member_id} member.",
        )
    return holder


def _validate_epoch(current: CurrentAssignment, request: ConsumerGroupHeartbeatRequest) -> None:
    """The previous epoch is accepted, because the response with the new one may be lost. Epoch 0 is a rejoin, and always accepted."""
    epoch = request.member_epoch
    if epoch == current.epoch:
        return
    owned = _owned(request)
    is_repeated = epoch == current.previous_epoch and owned is not None
    if epoch > current.epoch or not (is_repeated and is_subset(owned or {}, partitions_of(current.assigned))):
        raise fenced(GroupType.CONSUMER, epoch, current.epoch)


def _owned(request: ConsumerGroupHeartbeatRequest) -> Assignment | None:
    return None if request.topic_partitions is None else assignment_of(request.topic_partitions)


def _leave(shard: GroupMetadataManager, request: ConsumerGroupHeartbeatRequest) -> Decision:
    """A member leaves for good (epoch -1), or temporarily, which static members do at a restart (epoch -2)."""
    group = shard.group(ConsumerGroup, request.group_id)
    if request.instance_id is None:
        member = group.member(request.member_id)
    else:
        member = group.static_member(request.instance_id, request.member_id)
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


# ---- 1: a static member rejoins


def _replace(
    beat: ConsumerBeat, group: ConsumerGroup, former: ConsumerGroupMember, records: list[CoordinatorRecord]
) -> Decision:
    """The new process of a static member takes over the assignment of the former one at epoch 0."""
    shard, _, request, client = beat
    group_id, member_id = group.group_id, request.member_id
    before, after = former.metadata, _updated(former.metadata, request, client)
    regexes.change(group, before.subscribed_topic_regex or "", after.subscribed_topic_regex or "")  # it may be refused
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
        return _subscribe(beat, shard.group(ConsumerGroup, group_id), [])

    return Outcome(records, then=replaced)


# ---- 2 to 4: what the member wants, and its next step


def _subscribe(beat: ConsumerBeat, group: ConsumerGroup, records: list[CoordinatorRecord]) -> Decision:
    shard, _, request, client = beat
    member = group.members.get(request.member_id)
    before = EMPTY_METADATA if member is None else member.metadata
    owned = _owned(request)

    def respond(step: Step) -> Decision:
        current, group = step.member.current, step.group
        interval_ms = shard.cluster.settings_of(group).heartbeat_interval_ms
        expression = step.member.metadata.subscribed_topic_regex
        is_waiting = step.member.current.is_waiting(group.epoch) or bool(
            expression and regexes.is_awaited(shard, group, expression)
        )
        response = ConsumerGroupHeartbeatResponse(
            member_id=step.member.member_id,
            member_epoch=current.epoch,
            heartbeat_interval_ms=shard.config.heartbeat_interval_ms(interval_ms, is_waiting=is_waiting),
        )
        member, given = step.member, partitions_of(current.assigned)
        has_changed = given != step.given_before
        if owned is not None:
            member.owned = owned
        # A response may be lost. librdkafka makes no full request after a timeout, and Kafka would not send the assignment again. While a
        # newer target is due it is not repeated: the member would take up what the next response takes away.
        is_unreported = member.owned != given and group.epoch == group.assignment_epoch
        if _is_full(request) or has_changed or is_unreported:
            response.assignment = TopicIdAssignment(structs_of(given, TopicIdPartitions))
        if member.owned is None and not has_changed and is_unreported:
            # Once is enough of a new coordinator: a member that has it already does not report it again.
            member.owned = given
        return Outcome(response=response)

    return subscribe(beat, group, _updated(before, request, client), owned, records, respond)


def _updated(
    before: ConsumerGroupMemberMetadataValue, request: ConsumerGroupHeartbeatRequest, client: Client
) -> ConsumerGroupMemberMetadataValue:
    """Return the member with the fields of the request; absent fields keep their values."""
    names, regex, timeout_ms = (
        request.subscribed_topic_names,
        request.subscribed_topic_regex,
        request.rebalance_timeout_ms,
    )
    return ConsumerGroupMemberMetadataValue(
        instance_id=before.instance_id if request.instance_id is None else request.instance_id,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        client_id=client.client_id,
        client_host=client.host,
        subscribed_topic_names=before.subscribed_topic_names if names is None else sorted(set(names)),
        subscribed_topic_regex=before.subscribed_topic_regex if regex is None else regex,
        rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=before.server_assignor if request.server_assignor is None else request.server_assignor,
        classic_member_metadata=None,
    )


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Return True for a full request, of a member that joins or has missed responses. Its response is full, too."""
    return request.member_epoch == JOINING_EPOCH or (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )


#: From v1 on clients generate their member ids (KIP-1082).
OWN_MEMBER_ID_SINCE = 1


def validate(request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: Sequence[str]) -> None:
    """Raise KafkaError INVALID_REQUEST or UNSUPPORTED_ASSIGNOR."""
    epoch = request.member_epoch
    needs_member_id = api_version >= OWN_MEMBER_ID_SINCE or epoch > JOINING_EPOCH or epoch == LEAVING_EPOCH
    check_ids(request, has_member_id=needs_member_id)
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
