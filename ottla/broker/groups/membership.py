"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: decided by a classic group, or by a consumer group for its classic members (KIP-848).

SyncGroup: the leader sends the assignment, and each member gets its own part of it. The responses of followers are delayed until the
leader's assignment is in the log. Its record, replayed, makes the group Stable; the responses are sent once it is committed.

LeaveGroup: a member leaves (v0-2), or an administrator removes several, also by instance id alone (v3+).
"""

from __future__ import annotations

import logging

from ottla.broker.coordinator.outcome import Outcome, Response, Unasked
from ottla.broker.groups.classic import join as classic_join
from ottla.broker.groups.classic import rebalance
from ottla.broker.groups.classic.classic_group import ClassicGroup
from ottla.broker.groups.classic.classic_member import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    ClassicGroupMember,
)
from ottla.broker.groups.consumer import classic_members
from ottla.broker.groups.consumer.consumer_group import ConsumerGroup
from ottla.broker.groups.group import group_metadata_record
from ottla.broker.groups.group_metadata_manager import Client, GroupMetadataManager
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.server.network.context import Reply

log = logging.getLogger(__name__)


def join(
    shard: GroupMetadataManager, now_ms: int, request: JoinGroupRequest, client: Client, reply: Reply[JoinGroupResponse]
) -> Outcome[JoinGroupResponse]:
    """Decide on a JoinGroup; without a response in the outcome the member keeps the reply."""
    consumer_group = shard.find(ConsumerGroup, request.group_id)
    if consumer_group is not None and consumer_group.members:
        return classic_members.join(shard, consumer_group, now_ms, request, client)
    return classic_join.join(shard, now_ms, request, client, reply)


def heartbeat(shard: GroupMetadataManager, request: HeartbeatRequest) -> HeartbeatResponse:
    """Keep the member's session; the response says whether it must rejoin. Only the deadline of the session changes.

    Raises KafkaError if the heartbeat is not from a member of this generation.
    """
    group = shard.find(ClassicGroup, request.group_id)
    if group is None:
        consumer_group = shard.find(ConsumerGroup, request.group_id)
        if consumer_group is not None:
            return classic_members.heartbeat(shard, consumer_group, request)
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    _validate(group, request)
    assert group.state is not EMPTY
    rebalance.restart_session(shard, group, group.members[request.member_id])
    if group.state is PREPARING_REBALANCE:
        return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    return HeartbeatResponse()


# ---- SyncGroup


def sync(
    shard: GroupMetadataManager, now_ms: int, request: SyncGroupRequest, reply: Reply[SyncGroupResponse]
) -> Outcome[SyncGroupResponse]:
    """Decide on a SyncGroup; without a response in the outcome the member keeps the reply."""
    consumer_group = shard.find(ConsumerGroup, request.group_id)
    if consumer_group is not None:
        return classic_members.sync(shard, consumer_group, request)
    group = shard.find(ClassicGroup, request.group_id)
    if group is None or group.state is EMPTY:
        return _rejection(ErrorCode.UNKNOWN_MEMBER_ID)
    try:
        _validate(group, request)
        _check_protocol(group, request)
    except KafkaError as error:
        return _rejection(error.code)
    if group.state is PREPARING_REBALANCE:
        return _rejection(ErrorCode.REBALANCE_IN_PROGRESS)
    member = group.members[request.member_id]
    if group.state is not COMPLETING_REBALANCE:
        _synced(shard, group, member)
        return Outcome(response=_assigned(group, member))
    # The request may be a retry on a new connection; Kafka leaves the older request unanswered, so its connection would wait for ever.
    replies = member.answer_sync(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    member.awaiting_sync = reply
    _synced(shard, group, member)
    if group.leader != member.member_id:
        return Outcome(replies=replies)
    return Outcome(replies=replies, then=lambda: _assign(shard, group, request, now_ms))


def _rejection(error: ErrorCode) -> Outcome[SyncGroupResponse]:
    return Outcome(response=SyncGroupResponse(error_code=error))


def _validate(group: ClassicGroup, request: HeartbeatRequest | SyncGroupRequest) -> None:
    if group.state is DEAD:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    group.validate_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)


def _check_protocol(group: ClassicGroup, request: SyncGroupRequest) -> None:
    for said, chosen in (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol_name),
    ):
        if said is not None and chosen is not None and said != chosen:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _synced(shard: GroupMetadataManager, group: ClassicGroup, member: ClassicGroupMember) -> None:
    group.pending_sync_members.discard(member.member_id)
    if not group.pending_sync_members:
        shard.timers.cancel(rebalance.sync_key(group.group_id))


def _assign(shard: GroupMetadataManager, group: ClassicGroup, request: SyncGroupRequest, now_ms: int) -> Unasked:
    """Return the assignments. Members that the leader left out get an empty one; assignments to unknown members are dropped."""
    shard.story(group.group_id, log).info(
        "Assignment received from leader %s for group %s for generation %d; the group has %d members, %d of them static",
        request.member_id,
        group.group_id,
        group.generation,
        len(group.members),
        len(group.static_members),
    )
    assignments = {assigned.member_id: assigned.assignment for assigned in request.assignments}
    value = group.value(
        generation=group.generation,
        members=list(group.members.values()),
        assignments=assignments,
        now_ms=now_ms,
    )

    def replayed() -> Unasked:
        shard.counts.rebalances[group.type] += 1
        replies: list[Response] = []
        for member in group.members.values():
            if member.awaiting_sync is not None:
                replies += member.answer_sync(_assigned(group, member))
                rebalance.restart_session(shard, group, member)
        return Outcome(replies=replies)

    def rejected(error: KafkaError) -> Unasked:
        replies = rebalance.fail_syncs(shard, group, error.code)
        reason = f"{error.code.name} when storing the assignment of member {request.member_id}"
        return Outcome(replies=replies, then=lambda: rebalance.prepare(shard, group, now_ms, reason))

    return Outcome([group_metadata_record(group.group_id, value)], then=replayed, rejected=rejected)


def _assigned(group: ClassicGroup, member: ClassicGroupMember) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
    )


# ---- LeaveGroup


def leave(shard: GroupMetadataManager, now_ms: int, request: LeaveGroupRequest) -> Outcome[LeaveGroupResponse]:
    """Remove members. Each has a result of its own; one rebalance follows for all that left."""
    consumer_group = shard.find(ConsumerGroup, request.group_id)
    if consumer_group is not None:
        return classic_members.leave(shard, consumer_group, request)
    group = shard.find(ClassicGroup, request.group_id)
    if group is None:
        return Outcome(response=LeaveGroupResponse(members=[
            _result(identity, ErrorCode.UNKNOWN_MEMBER_ID) for identity in request.members
        ]))  # fmt: skip
    if group.state is DEAD:
        return Outcome(response=LeaveGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
    replies: list[Response] = []
    results = [_result(identity, _leave_one(shard, group, identity, replies)) for identity in request.members]
    outcome = Outcome(response=LeaveGroupResponse(members=results), replies=replies)
    if any(result.error_code == ErrorCode.NONE for result in results):
        if group.state in (STABLE, COMPLETING_REBALANCE):
            left = [a.member_id or a.group_instance_id or "" for a in results if a.error_code == ErrorCode.NONE]
            reason = f"explicit removal of members {', '.join(left)} on LeaveGroup"
            outcome.then = lambda: rebalance.prepare(shard, group, now_ms, reason)
        elif group.state is PREPARING_REBALANCE:
            outcome.then = lambda: rebalance.complete_if_all_joined(shard, group, now_ms)
    return outcome


def _result(identity: MemberIdentity, error: ErrorCode) -> MemberResponse:
    return MemberResponse(identity.member_id, identity.group_instance_id, error)


def _leave_one(
    shard: GroupMetadataManager, group: ClassicGroup, identity: MemberIdentity, replies: list[Response]
) -> ErrorCode:
    member_id: str | None = identity.member_id
    if not member_id:
        member_id = group.static_members.get(identity.group_instance_id or "")
        if member_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
    elif member_id in group.pending_members:
        _say(shard, group, member_id, identity)
        group.remove(member_id)
        shard.timers.cancel(rebalance.session_key(group.group_id, member_id))
        return ErrorCode.NONE
    else:
        try:
            group.validate_member(member_id, identity.group_instance_id)
        except KafkaError as error:
            return error.code
    _say(shard, group, member_id, identity)
    shard.timers.cancel(rebalance.session_key(group.group_id, member_id))
    member = group.members[member_id]
    # Only an administrator can make a member leave that waits for the assignment; Kafka never sends the response.
    replies += member.answer_sync(SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    replies += rebalance.remove_member(group, member)
    return ErrorCode.NONE


def _say(shard: GroupMetadataManager, group: ClassicGroup, member_id: str, identity: MemberIdentity) -> None:
    shard.story(group.group_id, log).info(
        "Member %s%s has left group %s through explicit LeaveGroup%s",
        member_id,
        f" with group instance id {identity.group_instance_id}" if identity.group_instance_id else "",
        group.group_id,
        rebalance.client_reason(identity.reason),
    )
