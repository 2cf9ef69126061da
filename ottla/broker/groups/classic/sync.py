"""SyncGroup: the leader sends the assignment, and each member gets its own part of it.

The responses of followers are delayed until the leader's assignment is in the log. Its record, replayed, makes the group Stable; the
responses are sent once it is committed.
"""

from __future__ import annotations

import logging

from ottla.broker.coordinator.outcome import Outcome, Response, Unasked
from ottla.broker.groups.classic import rebalance
from ottla.broker.groups.group_metadata_manager import GroupMetadataManager
from ottla.broker.groups.state.classic_group import ClassicGroup
from ottla.broker.groups.state.classic_member import Member
from ottla.broker.groups.state.classic_states import COMPLETING_REBALANCE, DEAD, EMPTY, PREPARING_REBALANCE
from ottla.broker.groups.state.group_records import group_metadata_record
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.server.network.reply import Reply

log = logging.getLogger(__name__)


def sync(
    shard: GroupMetadataManager, now_ms: int, request: SyncGroupRequest, reply: Reply[SyncGroupResponse]
) -> Outcome[SyncGroupResponse]:
    group = shard.find(ClassicGroup, request.group_id)
    if group is None or group.state is EMPTY:
        return _rejection(ErrorCode.UNKNOWN_MEMBER_ID)
    try:
        _validate(group, request)
    except KafkaError as error:
        return _rejection(error.code)
    if group.state is PREPARING_REBALANCE:
        return _rejection(ErrorCode.REBALANCE_IN_PROGRESS)
    member = group.members[request.member_id]
    if group.state is not COMPLETING_REBALANCE:
        _synced(shard, group, member)
        return Outcome(response=_assigned(group, member))
    replies: list[Response] = []
    if member.awaiting_sync is not None:
        # A retry on a new connection; Kafka leaves the older request unanswered, so its connection would wait for ever.
        replies.append((member.awaiting_sync, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)))
    member.awaiting_sync = reply
    _synced(shard, group, member)
    if group.leader != member.member_id:
        return Outcome(replies=replies)
    return Outcome(replies=replies, then=lambda: _assign(shard, group, request, now_ms))


def _rejection(error: ErrorCode) -> Outcome[SyncGroupResponse]:
    return Outcome(response=SyncGroupResponse(error_code=error))


def _validate(group: ClassicGroup, request: SyncGroupRequest) -> None:
    if group.state is DEAD:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    group.validate_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    for said, chosen in (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol_name),
    ):
        if said is not None and chosen is not None and said != chosen:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _synced(shard: GroupMetadataManager, group: ClassicGroup, member: Member) -> None:
    group.pending_sync_members.discard(member.member_id)
    if not group.pending_sync_members:
        shard.timers.cancel(rebalance.sync_key(group.group_id))


def _assign(shard: GroupMetadataManager, group: ClassicGroup, request: SyncGroupRequest, now_ms: int) -> Unasked:
    """Returns the assignments. Members that the leader left out get an empty one; assignments to unknown members are dropped."""
    log.info(
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
                replies.append((member.awaiting_sync, _assigned(group, member)))
                member.awaiting_sync = None
                rebalance.restart_session(shard, group, member)
        return Outcome(replies=replies)

    def rejected(error: KafkaError) -> Unasked:
        replies = rebalance.fail_syncs(shard, group, error.code)
        reason = f"{error.code.name} when storing the assignment of member {request.member_id}"
        return Outcome(replies=replies, then=lambda: rebalance.prepare(shard, group, now_ms, reason))

    return Outcome([group_metadata_record(group.group_id, value)], then=replayed, rejected=rejected)


def _assigned(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
    )
