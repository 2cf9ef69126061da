"""Static membership (KIP-345): a group.instance.id names a member across restarts of its process.

A process that joins with a known instance id and no member id takes the place of the former one under a new member id.
The former id is fenced. In a Stable group that needs no rebalance as long as the chosen protocol stays (and the leader
gets skip_assignment, KIP-814); only the new id is written.
"""

from __future__ import annotations

import logging
from dataclasses import replace as copy_with

from ottla.broker.coordinator.outcome import Outcome, Response
from ottla.broker.groups.classic import rebalance
from ottla.broker.groups.group_metadata_manager import Client, GroupMetadataManager
from ottla.broker.groups.state.classic_group import ClassicGroup, select_protocol
from ottla.broker.groups.state.classic_member import Member, Protocols
from ottla.broker.groups.state.classic_states import COMPLETING_REBALANCE, STABLE
from ottla.broker.groups.state.group_records import group_metadata_record
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.messages.sync_group import SyncGroupResponse
from ottla.server.network.reply import Reply

log = logging.getLogger(__name__)

# KIP-814
SKIP_ASSIGNMENT_SINCE = 9


def replace(
    shard: GroupMetadataManager,
    group: ClassicGroup,
    now_ms: int,
    request: JoinGroupRequest,
    protocols: Protocols,
    client: Client,
    reply: Reply[JoinGroupResponse],
    old_member_id: str,
    new_member_id: str,
) -> Outcome[JoinGroupResponse]:
    """Replace the member: a new process has the same instance id."""
    former = group.members[old_member_id]
    log.info(
        "Static member with group instance id %s and unknown member id joins group %s in %s state;"
        " replacing the previously mapped member %s by %s",
        request.group_instance_id,
        group.group_id,
        group.state.value,
        old_member_id,
        new_member_id,
    )
    if group.state is STABLE:
        newcomer = copy_with(
            former,
            member_id=new_member_id,
            protocols=protocols,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            awaiting_join=None,
            awaiting_sync=None,
        )
        members = [newcomer if member is former else member for member in group.members.values()]
        if select_protocol(members) == group.protocol_name:
            return _replace_in_log(shard, group, now_ms, members, former, newcomer, client)
    replies = _fence(former)
    group.awaiting_join_count -= any(isinstance(response, JoinGroupResponse) for _, response in replies)
    member = group.rename(old_member_id, new_member_id)
    shard.timers.cancel(rebalance.session_key(group.group_id, old_member_id))
    group.update(member, protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
    member.awaiting_join = reply
    group.awaiting_join_count += 1
    rebalance.restart_session(shard, group, member)
    reason = f"updating metadata for static member {new_member_id} with group instance id {request.group_instance_id}"
    reason += rebalance.client_reason(request.reason)
    if group.state in (STABLE, COMPLETING_REBALANCE):
        # CompletingRebalance: the leader may be assigning to the old id right now, so all members have to join again.
        return Outcome(replies=replies, then=lambda: rebalance.prepare(shard, group, now_ms, reason))
    return Outcome(replies=replies, then=lambda: rebalance.complete_if_all_joined(shard, group, now_ms))


def _replace_in_log(
    shard: GroupMetadataManager,
    group: ClassicGroup,
    now_ms: int,
    members: list[Member],
    former: Member,
    newcomer: Member,
    client: Client,
) -> Outcome[JoinGroupResponse]:
    old_leader = group.leader
    value = group.value(
        generation=group.generation,
        members=members,
        assignments={member.member_id: member.assignment for member in members},
        now_ms=group.state_timestamp_ms,
    )
    if old_leader == former.member_id:
        value.leader = newcomer.member_id

    def replayed() -> Outcome[JoinGroupResponse]:
        member = group.members[newcomer.member_id]
        member.protocols = newcomer.protocols
        group.recount()
        group.pending_sync_members.discard(former.member_id)
        shard.timers.cancel(rebalance.session_key(group.group_id, former.member_id))
        rebalance.restart_session(shard, group, member)
        if client.api_version >= SKIP_ASSIGNMENT_SINCE:
            is_leader = group.leader == newcomer.member_id
            response = rebalance.joined(group, newcomer.member_id, skip_assignment=is_leader)
        else:
            # An older client that is leader would assign again: its response has the leader's former id.
            response = rebalance.joined(group, newcomer.member_id)
            response.leader = old_leader or ""
            response.members = []
        return Outcome(response=response, replies=_fence(former))

    return Outcome([group_metadata_record(group.group_id, value)], then=replayed)


def _fence(former: Member) -> list[Response]:
    """Completes the former process's pending responses with FENCED_INSTANCE_ID."""
    replies: list[Response] = []
    if former.awaiting_join is not None:
        response = JoinGroupResponse(
            error_code=ErrorCode.FENCED_INSTANCE_ID, member_id=former.member_id, protocol_name=None
        )
        replies.append((former.awaiting_join, response))
        former.awaiting_join = None
    if former.awaiting_sync is not None:
        replies.append((former.awaiting_sync, SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID)))
        former.awaiting_sync = None
    return replies
