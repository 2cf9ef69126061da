"""Members of the classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup (KIP-848).

A JoinGroup stands for the heartbeat of other members: it has the member's subscription and partitions, and takes it a step
towards its target; the member's epoch is its generation. There is no leader. A member is sent to join again by
REBALANCE_IN_PROGRESS, when

    the group has a newer epoch
    the member has to say that it gave partitions up
    partitions of its target that others had are free
"""

from __future__ import annotations

import logging
from functools import partial

from ottla.broker.coordinator.outcome import Outcome, Unasked
from ottla.broker.groups import heartbeats
from ottla.broker.groups.classic.join import MEMBER_ID_REQUIRED_SINCE
from ottla.broker.groups.consumer.consumer_group import (
    EMPTY_METADATA,
    ConsumerGroup,
    ConsumerGroupMember,
)
from ottla.broker.groups.consumer.consumer_heartbeat import Step, subscribe
from ottla.broker.groups.consumer.migration import downgraded, is_downgrade_due
from ottla.broker.groups.group_metadata_manager import Client, GroupMetadataManager
from ottla.broker.groups.heartbeats import Beat, fence, keep_alive, remove
from ottla.broker.groups.modern import assignment as embedded
from ottla.broker.groups.modern.assignment import partitions_of
from ottla.broker.groups.modern.modern_group import UNRELEASED, UNREVOKED
from ottla.protocol.errors import ErrorCode, KafkaError, ProtocolError
from ottla.protocol.internal_topics.control_messages import ConsumerProtocolSubscription
from ottla.protocol.internal_topics.group_records import ClassicMemberMetadata, ConsumerGroupMemberMetadataValue
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from ottla.protocol.messages.shared_structs import ClassicProtocol
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

log = logging.getLogger(__name__)


# ---- JoinGroup


def join(
    shard: GroupMetadataManager, group: ConsumerGroup, now_ms: int, request: JoinGroupRequest, client: Client
) -> Outcome[JoinGroupResponse]:
    if shard.config.is_migration_disabled:
        shard.story(group.group_id, log).info(
            "Cannot join the consumer group %s with the classic protocol because the group migration is disabled.",
            group.group_id,
        )
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    is_new = not request.member_id
    request.member_id = member_id = request.member_id or shard.new_uuid()
    if member_id not in group.members and len(group.members) >= shard.config.consumer_group_max_size:
        raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED)
    if not group.supports_classic(request.protocol_type, [protocol.name for protocol in request.protocols]):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if is_new and request.group_instance_id is None and client.api_version >= MEMBER_ID_REQUIRED_SINCE:
        shard.story(group.group_id, log).info(
            "[GroupId %s] Dynamic member with unknown member id joins the consumer group. Created a new member id %s and"
            " requesting the member to rejoin with this id.",
            group.group_id,
            member_id,
        )
        return Outcome(response=JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))
    try:
        subscription = embedded.subscription(request.protocols[0].metadata)
    except ProtocolError as error:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Malformed embedded consumer protocol: {error}") from error
    beat = Beat(shard, now_ms, request, client)
    former = _static_member(group, request, is_new)
    if former is None or former.member_id == member_id:
        return _subscribe(beat, group, subscription)
    names = {*group.subscribed_topics({}), *subscription.topics}
    shard.cluster.hashes.of_group(shard.cluster.topics(), names)  # before anything is changed: it may have to wait
    is_downgrade = not former.is_classic and is_downgrade_due(shard, group, {former.member_id}, joining=1)

    def replaced() -> Outcome[JoinGroupResponse]:
        heartbeats.forget(shard, group, former.member_id)
        return _subscribe(beat, group, subscription, is_downgrade=is_downgrade)

    return Outcome(group.replacement(former, member_id), then=replaced)


def _static_member(group: ConsumerGroup, request: JoinGroupRequest, is_new: bool) -> ConsumerGroupMember | None:
    """Return the member with the request's instance id, whose place a new process takes."""
    if request.group_instance_id is None:
        return None
    if not is_new:
        return group.static_member(request.group_instance_id, request.member_id)
    return group.members.get(group.static_members.get(request.group_instance_id, ""))


def _subscribe(
    beat: Beat[JoinGroupRequest],
    group: ConsumerGroup,
    subscription: ConsumerProtocolSubscription,
    *,
    is_downgrade: bool = False,
) -> Outcome[JoinGroupResponse]:
    shard, _, request, client = beat
    member_id = request.member_id
    group_id = group.group_id
    before = group.members[member_id].metadata if member_id in group.members else EMPTY_METADATA
    owned = embedded.assignment_of(embedded.owned(subscription, shard.cluster.topics()))
    metadata = _metadata(before, request, client, subscription)

    def respond(step: Step) -> Outcome[JoinGroupResponse]:
        response = JoinGroupResponse(
            member_id=member_id,
            generation_id=step.member.current.epoch,
            protocol_type=embedded.CONSUMER,
            protocol_name=request.protocols[0].name,
        )
        if is_downgrade:
            reason = "static member replacement with different subscription" if step.is_other_subscription else None
            return downgraded(shard, step.group, frozenset(), reason, response)
        shard.timers.cancel(heartbeats.timer_key(heartbeats.JOIN, group, member_id))
        shard.timers.schedule(
            heartbeats.timer_key(heartbeats.SYNC, group, member_id),
            request.rebalance_timeout_ms,
            partial(_fence_if_classic, shard, group_id, member_id, "the member failed to sync within timeout"),
        )
        return Outcome(response=response)

    return subscribe(beat, group, metadata, owned, [], respond)


def _metadata(
    before: ConsumerGroupMemberMetadataValue,
    request: JoinGroupRequest,
    client: Client,
    subscription: ConsumerProtocolSubscription,
) -> ConsumerGroupMemberMetadataValue:
    timeout_ms = request.rebalance_timeout_ms
    return ConsumerGroupMemberMetadataValue(
        instance_id=request.group_instance_id or before.instance_id,
        rack_id=subscription.rack_id or before.rack_id,
        client_id=client.client_id,
        client_host=client.host,
        subscribed_topic_names=sorted(set(subscription.topics)),
        subscribed_topic_regex="",
        rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=before.server_assignor,
        classic_member_metadata=ClassicMemberMetadata(
            request.session_timeout_ms, [ClassicProtocol(each.name, bytes(each.metadata)) for each in request.protocols]
        ),
    )


# ---- SyncGroup and Heartbeat


def sync(shard: GroupMetadataManager, group: ConsumerGroup, request: SyncGroupRequest) -> Outcome[SyncGroupResponse]:
    member = _member(group, request.member_id, request.group_instance_id, request.generation_id)
    assert member.metadata.classic_member_metadata is not None
    preferred = member.metadata.classic_member_metadata.supported_protocols[0]
    if request.protocol_type not in (None, embedded.CONSUMER) or request.protocol_name not in (None, preferred.name):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.epoch > member.current.epoch and member.current.state is not UNREVOKED:
        _wait_for_join(shard, group, member)
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
    shard.timers.cancel(heartbeats.timer_key(heartbeats.SYNC, group, member.member_id))
    keep_alive(shard, group, member)
    assigned = partitions_of(member.current.assigned)
    return Outcome(
        response=SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=embedded.assignment_bytes(assigned, shard.cluster.topics(), bytes(preferred.metadata)),
        )
    )


def heartbeat(shard: GroupMetadataManager, group: ConsumerGroup, request: HeartbeatRequest) -> HeartbeatResponse:
    member = _member(group, request.member_id, request.group_instance_id, request.generation_id)
    keep_alive(shard, group, member)
    if not _has_to_join(group, member):
        return HeartbeatResponse()
    _wait_for_join(shard, group, member)
    return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)


def _has_to_join(group: ConsumerGroup, member: ConsumerGroupMember) -> bool:
    current = member.current
    if current.epoch < group.epoch or current.state is UNREVOKED:
        return True
    return current.state is UNRELEASED and all(
        partition in current.assigned.get(topic_id, {}) or group.is_free(topic_id, partition)
        for topic_id, partitions in group.target(member.member_id).items()
        for partition in partitions
    )


def _member(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> ConsumerGroupMember:
    if instance_id is not None:
        group.static_member(instance_id, member_id)
    member = group.member(member_id)
    if not member.is_classic:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
    if member.current.epoch != generation:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    return member


def _wait_for_join(shard: GroupMetadataManager, group: ConsumerGroup, member: ConsumerGroupMember) -> None:
    key = heartbeats.timer_key(heartbeats.JOIN, group, member.member_id)
    if key not in shard.timers:
        why = "the classic member failed to join within the rebalance timeout"
        callback = partial(_fence_if_classic, shard, group.group_id, member.member_id, why)
        shard.timers.schedule(key, member.metadata.rebalance_timeout_ms, callback)


def _fence_if_classic(shard: GroupMetadataManager, group_id: str, member_id: str, why: str) -> Unasked:
    group = shard.find(ConsumerGroup, group_id)
    if group is None or member_id not in group.members or not group.members[member_id].is_classic:
        return Outcome()
    return fence(shard, group, group.members[member_id], why)


# ---- LeaveGroup


def leave(shard: GroupMetadataManager, group: ConsumerGroup, request: LeaveGroupRequest) -> Outcome[LeaveGroupResponse]:
    """Members leave, also members by the consumer protocol that an administrator removes."""
    leaving: dict[str, None] = {}
    results = []
    for identity in request.members:
        result = MemberResponse(identity.member_id, identity.group_instance_id)
        try:
            member_id = _leaving(group, identity)
            shard.story(group.group_id, log).info(
                "[GroupId %s] Member %s has left group through explicit `LeaveGroup`",
                group.group_id,
                member_id,
            )
            leaving[member_id] = None
        except KafkaError as error:
            result.error_code = error.code
        results.append(result)
    response = LeaveGroupResponse(members=results)
    return remove(shard, group, leaving.keys(), response) if leaving else Outcome(response=response)


def _leaving(group: ConsumerGroup, identity: MemberIdentity) -> str:
    instance_id = identity.group_instance_id
    if instance_id is None:
        return group.member(identity.member_id).member_id
    return group.static_member(instance_id, identity.member_id or group.static_members.get(instance_id, "")).member_id
