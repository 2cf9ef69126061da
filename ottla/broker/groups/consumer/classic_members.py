"""Members of the classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup (KIP-848).

A JoinGroup is what a heartbeat is to the others: it has the member's subscription and partitions, and takes it a step towards its target; the
member's epoch is its generation. There is no leader. A member is sent to join again by REBALANCE_IN_PROGRESS, when

    the group has a newer epoch
    the member has to say that it gave partitions up
    partitions of its target that others had are free

A classic group becomes a consumer group when a member joins it by the consumer protocol (KIP-848). Its members go on with the classic
protocol. They have the generation as their epoch and what they were assigned; those that wait in a rebalance are sent to join again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from ottla.broker.coordinator.outcome import CoordinatorRecord, Outcome, Response, Unasked
from ottla.broker.groups import member_sessions
from ottla.broker.groups.classic import rebalance
from ottla.broker.groups.classic.classic_group import ClassicGroup
from ottla.broker.groups.classic.classic_member import EMPTY, ClassicGroupMember
from ottla.broker.groups.classic.join import MEMBER_ID_REQUIRED_SINCE
from ottla.broker.groups.consumer.consumer_group import (
    EMPTY_METADATA,
    RECORDS,
    ConsumerGroup,
    ConsumerGroupMember,
    CurrentAssignment,
)
from ottla.broker.groups.consumer.downgrade import downgraded, is_downgrade_due
from ottla.broker.groups.consumer.subscribe import Step, subscribe
from ottla.broker.groups.group_metadata_manager import Client, GroupMetadataManager
from ottla.broker.groups.member_sessions import Beat, fence, keep_alive, remove
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
        log.info(
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
        log.info(
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
        member_sessions.forget(shard, group, former.member_id)
        return _subscribe(beat, group, subscription, is_downgrade=is_downgrade)

    return Outcome(group.replacement(former, member_id), then=replaced)


def _static_member(group: ConsumerGroup, request: JoinGroupRequest, is_new: bool) -> ConsumerGroupMember | None:
    """The member with the request's instance id, whose place a new process takes."""
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
        shard.timers.cancel(member_sessions.timer_key(member_sessions.JOIN, group, member_id))
        shard.timers.schedule(
            member_sessions.timer_key(member_sessions.SYNC, group, member_id),
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
    shard.timers.cancel(member_sessions.timer_key(member_sessions.SYNC, group, member.member_id))
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
    key = member_sessions.timer_key(member_sessions.JOIN, group, member.member_id)
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
            log.info(
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


# ---- a classic group becomes a consumer group


class NewGroup(NamedTuple):
    """A consumer group that is not the shard's before its records are replayed; `made` is called then."""

    group: ConsumerGroup
    records: list[CoordinatorRecord]
    replies: list[Response]
    made: Callable[[], None]


def new_group(shard: GroupMetadataManager, group_id: str) -> NewGroup:
    """Return a group for a first member by the consumer protocol; KafkaError if a group with this id stays a classic one."""
    classic = shard.find(ClassicGroup, group_id)
    if classic is None:
        shard.check_place_for(ConsumerGroup, group_id)
        return NewGroup(ConsumerGroup(group_id), [], [], lambda: None)
    if classic.state is EMPTY:
        # The classic group gives its place up, and its offsets stay. A client that was sent a member id and did not join yet joins the new
        # group with it.
        return NewGroup(
            ConsumerGroup(group_id),
            [*classic.tombstones()],
            [],
            lambda: _forget_members(shard, classic),
        )
    _check_upgrade(shard, classic)
    try:
        records = _records(shard, classic)
    except ProtocolError as error:
        log.warning("Cannot upgrade classic group %s to consumer group: %s", group_id, error)
        why = "the embedded consumer protocol is malformed"
        if isinstance(error, embedded.CustomAssignor):
            why = (
                "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default assignor"
                " before re-attempting the upgrade"
            )
        raise _not_upgraded(group_id, why) from error
    group = ConsumerGroup(group_id)
    for key, value in records[1:]:
        group.replay(key, value)

    def made() -> None:
        log.info("[GroupId %s] Converted the classic group to a consumer group.", group_id)
        shard.timers.cancel(rebalance.join_key(group_id))
        shard.timers.cancel(rebalance.sync_key(group_id))
        _forget_members(shard, classic)
        known = shard.group(ConsumerGroup, group_id)
        for member in known.members.values():
            keep_alive(shard, known, member)

    replies = [row for member in classic.members.values() for row in member.answers(ErrorCode.REBALANCE_IN_PROGRESS)]
    return NewGroup(group, records, replies, made)


def _forget_members(shard: GroupMetadataManager, classic: ClassicGroup) -> None:
    for member_id in (*classic.members, *classic.pending_members):
        shard.timers.cancel(rebalance.session_key(classic.group_id, member_id))


def _check_upgrade(shard: GroupMetadataManager, classic: ClassicGroup) -> None:
    if not shard.config.is_upgrade_enabled:
        raise _not_upgraded(classic.group_id, "online upgrade is disabled")
    if not classic.uses_consumer_protocol:
        raise _not_upgraded(classic.group_id, "the group does not use the consumer embedded protocol")
    if len(classic.members) > shard.config.consumer_group_max_size:
        raise _not_upgraded(classic.group_id, "the group size exceeds the consumer group maximum size")


def _not_upgraded(group_id: str, why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND, f"Cannot upgrade classic group {group_id} to consumer group because {why}."
    )


def _records(shard: GroupMetadataManager, classic: ClassicGroup) -> list[CoordinatorRecord]:
    """The tombstone of the classic group comes first."""
    group_id, epoch, topics = classic.group_id, classic.generation, shard.cluster.topics()
    # A group in its first rebalance has no protocol yet, and its members have chosen none.
    protocol = classic.protocol_name
    members = {member.member_id: _upgraded_metadata(member, protocol) for member in classic.members.values()}
    given = {member.member_id: embedded.assigned(member.assignment, topics) for member in classic.members.values()}
    names = {name for metadata in members.values() for name in metadata.subscribed_topic_names}
    records = [*classic.tombstones()]
    records += [RECORDS.member_record(group_id, member_id, metadata) for member_id, metadata in members.items()]
    records.append(RECORDS.group_record(group_id, epoch, shard.cluster.hashes.of_group(topics, names)))
    records += [RECORDS.target_record(group_id, member_id, assignment) for member_id, assignment in given.items()]
    records.append(RECORDS.assignment_epoch_record(group_id, epoch, 0))
    for member_id, assignment in given.items():
        holdings = {topic_id: dict.fromkeys(partitions, epoch) for topic_id, partitions in assignment.items()}
        records.append(RECORDS.current_record(group_id, member_id, CurrentAssignment(epoch, epoch, assigned=holdings)))
    return records


def _upgraded_metadata(member: ClassicGroupMember, protocol: str | None) -> ConsumerGroupMemberMetadataValue:
    known = dict(member.protocols)
    subscription = embedded.subscription(known.get(protocol or "", member.protocols[0][1]))
    return ConsumerGroupMemberMetadataValue(
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id or None,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(set(subscription.topics)),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=None,
        classic_member_metadata=ClassicMemberMetadata(
            member.session_timeout_ms, [ClassicProtocol(name, metadata) for name, metadata in member.protocols]
        ),
    )
