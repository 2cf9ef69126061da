"""The course of a rebalance: which members it waits for, how long, and what happens when they have joined or the timeout expires.

    Empty --first member--> PreparingRebalance --all joined / time up--> CompletingRebalance --assignment--> Stable

The first rebalance of a group waits group.initial.rebalance.delay.ms for more members, again after each one that comes,
up to the rebalance timeout (KIP-134). Later ones wait for the known members, up to the longest rebalance timeout among
them. All of it is soft state; only an Empty group at the end is written from here.
"""

from __future__ import annotations

import logging

from ottla.broker.coordinator.outcome import Outcome, Response, Unasked
from ottla.broker.groups.classic.classic_group import ClassicGroup
from ottla.broker.groups.classic.classic_member import (
    CAN_REBALANCE,
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    ClassicGroupMember,
)
from ottla.broker.groups.group import group_metadata_record
from ottla.broker.groups.group_metadata_manager import GroupMetadataManager
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from ottla.protocol.messages.sync_group import SyncGroupResponse

log = logging.getLogger(__name__)

# The record of a group that became empty is not urgent: no response waits for it.
EMPTY_RETRY_MS = 5_000


def session_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    return ("session", group_id, member_id)


def join_key(group_id: str) -> tuple[str, str]:
    return ("join", group_id)


def sync_key(group_id: str) -> tuple[str, str]:
    return ("sync", group_id)


# ---- starting one


def rebalance_or_complete(shard: GroupMetadataManager, group: ClassicGroup, now_ms: int, reason: str) -> Unasked:
    """Start a rebalance, or complete the running one if all members have joined."""
    if group.state in CAN_REBALANCE:
        return prepare(shard, group, now_ms, reason)
    return complete_if_all_joined(shard, group, now_ms)


def prepare(shard: GroupMetadataManager, group: ClassicGroup, now_ms: int, reason: str) -> Unasked:
    """Make all members join again. `reason` is for the log."""
    shard.story(group.group_id, log).info(
        "Preparing to rebalance group %s in state %s with old generation %d (reason: %s)",
        group.group_id,
        group.state.value,
        group.generation,
        reason,
    )
    replies: list[Response] = []
    if group.state is COMPLETING_REBALANCE:
        replies = fail_syncs(shard, group, ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_sync_members.clear()
    shard.timers.cancel(sync_key(group.group_id))
    group.initial_rebalance = group.state is EMPTY
    if group.initial_rebalance:
        delay_ms = shard.config.group_initial_rebalance_delay_ms
        _wait_for_more(shard, group, delay_ms, max(group.rebalance_timeout_ms() - delay_ms, 0))
        group.transition(PREPARING_REBALANCE, now_ms)
        return Outcome(replies=replies)
    group.transition(PREPARING_REBALANCE, now_ms)
    if group.has_all_members_joined():
        return Outcome(replies=replies, then=lambda: complete(shard, group, now_ms))
    _wait_for_joins(shard, group)
    return Outcome(replies=replies)


def client_reason(reason: str | None) -> str:
    """Return the reason that the client sent, for the log (KIP-800)."""
    return f"; client reason: {reason or 'not provided'}"


def _wait_for_joins(shard: GroupMetadataManager, group: ClassicGroup) -> None:
    shard.timers.schedule(join_key(group.group_id), group.rebalance_timeout_ms(), lambda: _joins_due(shard, group))


def _joins_due(shard: GroupMetadataManager, group: ClassicGroup) -> Unasked:
    return complete(shard, group, shard.wall_ms())


def _wait_for_more(shard: GroupMetadataManager, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
    shard.timers.schedule(join_key(group.group_id), delay_ms, lambda: _more_due(shard, group, delay_ms, remaining_ms))


def _more_due(shard: GroupMetadataManager, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> Unasked:
    if group.new_member_added and remaining_ms:
        group.new_member_added = False
        next_delay_ms = min(shard.config.group_initial_rebalance_delay_ms, remaining_ms)
        _wait_for_more(shard, group, next_delay_ms, max(remaining_ms - delay_ms, 0))
        return Outcome()
    return complete(shard, group, shard.wall_ms())


# ---- completing the join phase


def complete_if_all_joined(
    shard: GroupMetadataManager, group: ClassicGroup, now_ms: int, *, at_once: bool = False
) -> Unasked:
    """Complete the join phase if no member is missing; the first rebalance waits for its delay, unless `at_once`."""
    is_due = group.state is PREPARING_REBALANCE and (at_once or not group.initial_rebalance)
    return complete(shard, group, now_ms) if is_due and group.has_all_members_joined() else Outcome()


def complete(shard: GroupMetadataManager, group: ClassicGroup, now_ms: int) -> Unasked:
    """Continue with the members that joined: other dynamic members are removed, static ones stay until their session ends (KIP-345)."""
    if group.state is not PREPARING_REBALANCE:
        return Outcome()
    shard.timers.cancel(join_key(group.group_id))
    absent = [m.member_id for m in group.members.values() if m.awaiting_join is None and m.group_instance_id is None]
    if absent:
        shard.story(group.group_id, log).info(
            "Group %s removed dynamic members who have not joined: %s", group.group_id, ", ".join(absent)
        )
    for member_id in absent:
        group.remove(member_id)
        shard.timers.cancel(session_key(group.group_id, member_id))
    if not group.members:
        return _become_empty(shard, group, now_ms)
    if not group.elect_joined_leader():
        # Static members only, none of which came back: their session timeouts will remove them.
        shard.story(group.group_id, log).error(
            "Group %s could not complete rebalance because no members rejoined", group.group_id
        )
        _wait_for_joins(shard, group)
        return Outcome()
    group.next_generation(now_ms)
    shard.story(group.group_id, log).info(
        "Stabilized group %s generation %d with %d members", group.group_id, group.generation, len(group.members)
    )
    replies: list[Response] = []
    for member in group.members.values():
        if member.awaiting_join is not None:
            replies += member.answer_join(joined(group, member.member_id))
        member.is_new = False
        restart_session(shard, group, member)
        group.pending_sync_members.add(member.member_id)
    group.awaiting_join_count = 0
    generation = group.generation
    shard.timers.schedule(
        sync_key(group.group_id), group.rebalance_timeout_ms(), lambda: _syncs_due(shard, group, generation)
    )
    return Outcome(replies=replies)


def _become_empty(shard: GroupMetadataManager, group: ClassicGroup, now_ms: int) -> Unasked:
    value = group.value(generation=group.generation + 1, members=(), assignments={}, now_ms=now_ms)

    def replayed() -> Unasked:
        shard.story(group.group_id, log).info(
            "Group %s with generation %d is now empty", group.group_id, group.generation
        )
        return Outcome()

    def rejected(error: KafkaError) -> Unasked:
        shard.timers.schedule(join_key(group.group_id), EMPTY_RETRY_MS, lambda: _joins_due(shard, group))
        return Outcome()

    return Outcome([group_metadata_record(group.group_id, value)], then=replayed, rejected=rejected)


def joined(group: ClassicGroup, member_id: str, *, skip_assignment: bool = False) -> JoinGroupResponse:
    """Return the JoinGroup response of the current generation; the leader's lists all members."""
    members = []
    if group.leader == member_id:
        members = [
            JoinGroupResponseMember(m.member_id, m.group_instance_id, m.metadata(group.protocol_name))
            for m in group.members.values()
        ]
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader or "",
        skip_assignment=skip_assignment,
        member_id=member_id,
        members=members,
    )


# ---- waiting for SyncGroup


def fail_syncs(shard: GroupMetadataManager, group: ClassicGroup, error: ErrorCode) -> list[Response]:
    """Answer every delayed SyncGroup with an error, because the assignment is void."""
    replies: list[Response] = []
    for member in group.members.values():
        member.assignment = b""
        if member.awaiting_sync is not None:
            replies += member.answer_sync(SyncGroupResponse(error_code=error))
            restart_session(shard, group, member)
    return replies


def _syncs_due(shard: GroupMetadataManager, group: ClassicGroup, generation: int) -> Unasked:
    """Remove the members that joined but have not synced within the rebalance timeout: they hold their partitions idle."""
    if group.generation != generation or group.state not in (COMPLETING_REBALANCE, STABLE):
        return Outcome()
    if not group.pending_sync_members:
        return Outcome()
    late = list(group.pending_sync_members)
    for member_id in late:
        group.remove(member_id)
        shard.timers.cancel(session_key(group.group_id, member_id))
    reason = f"removing members {', '.join(late)} on pending sync request expiration"
    return prepare(shard, group, shard.wall_ms(), reason)


# ---- members that fall silent


def restart_session(shard: GroupMetadataManager, group: ClassicGroup, member: ClassicGroupMember) -> None:
    """The member is alive: its session ends a session timeout from now. The hot path of heartbeats and commits."""
    member_id = member.member_id
    key = session_key(group.group_id, member_id)
    if not shard.timers.postpone(key, member.session_timeout_ms):
        shard.timers.schedule(key, member.session_timeout_ms, lambda: expire_session(shard, group, member_id))


def expire_session(shard: GroupMetadataManager, group: ClassicGroup, member_id: str) -> Unasked:
    """Remove a member of which no heartbeat came within the session timeout."""
    if group.state is DEAD:
        return Outcome()
    if member_id in group.pending_members:
        shard.story(group.group_id, log).info(
            "Pending member %s in group %s has been removed after session timeout expiration", member_id, group.group_id
        )
        group.remove(member_id)
        return complete_if_all_joined(shard, group, shard.wall_ms(), at_once=True)
    member = group.members.get(member_id)
    if member is None or member.has_satisfied_heartbeat():
        return Outcome()
    shard.story(group.group_id, log).info(
        "Member %s in group %s has failed, removing it from the group", member_id, group.group_id
    )
    replies = remove_member(group, member)
    if group.state is PREPARING_REBALANCE:
        return Outcome(
            replies=replies, then=lambda: complete_if_all_joined(shard, group, shard.wall_ms(), at_once=True)
        )
    reason = f"removing member {member_id} on heartbeat expiration"
    return Outcome(replies=replies, then=lambda: rebalance_or_complete(shard, group, shard.wall_ms(), reason))


def remove_member(group: ClassicGroup, member: ClassicGroupMember) -> list[Response]:
    """Remove the member; its pending JoinGroup gets UNKNOWN_MEMBER_ID, so that it starts again."""
    group.remove(member.member_id)
    return member.answer_join(JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
