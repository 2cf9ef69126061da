"""LeaveGroup: a member leaves (v0-2), or an administrator removes several, also by instance id alone (v3+)."""

from __future__ import annotations

import logging

from ottla.broker.coordinator.outcome import Outcome, Response
from ottla.broker.groups.classic import rebalance
from ottla.broker.groups.group_metadata_manager import GroupMetadataManager
from ottla.broker.groups.state.classic_group import ClassicGroup
from ottla.broker.groups.state.classic_states import COMPLETING_REBALANCE, DEAD, PREPARING_REBALANCE, STABLE
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from ottla.protocol.messages.sync_group import SyncGroupResponse

log = logging.getLogger(__name__)


def leave(shard: GroupMetadataManager, now_ms: int, request: LeaveGroupRequest) -> Outcome[LeaveGroupResponse]:
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
        _say(group, member_id, identity)
        group.remove(member_id)
        shard.timers.cancel(rebalance.session_key(group.group_id, member_id))
        return ErrorCode.NONE
    else:
        try:
            group.validate_member(member_id, identity.group_instance_id)
        except KafkaError as error:
            return error.code
    _say(group, member_id, identity)
    shard.timers.cancel(rebalance.session_key(group.group_id, member_id))
    member = group.members[member_id]
    if member.awaiting_sync is not None:
        # Only an administrator can make a member leave that waits; Kafka never sends the response.
        replies.append((member.awaiting_sync, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)))
        member.awaiting_sync = None
    replies.extend(rebalance.remove_member(group, member))
    return ErrorCode.NONE


def _say(group: ClassicGroup, member_id: str, identity: MemberIdentity) -> None:
    log.info(
        "Member %s%s has left group %s through explicit LeaveGroup%s",
        member_id,
        f" with group instance id {identity.group_instance_id}" if identity.group_instance_id else "",
        group.group_id,
        rebalance.client_reason(identity.reason),
    )
