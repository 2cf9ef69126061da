"""JoinGroup: a new member joins, or a known one rejoins with its current protocols.

New dynamic members are first given an id and sent back to join with it, so that a client whose responses get lost does
not leave a trail of members (KIP-394, v4+).

A group.instance.id names a static member across restarts of its process (KIP-345). A process that joins with a known
instance id and no member id takes the place of the former one under a new member id. The former id is fenced. In a
Stable group that needs no rebalance as long as the chosen protocol stays (and the leader gets skip_assignment, KIP-814);
only the new id is written.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import NamedTuple

from ottla.broker.coordinator.outcome import Outcome, Response
from ottla.broker.groups.classic import rebalance
from ottla.broker.groups.classic.classic_group import ClassicGroup, select_protocol
from ottla.broker.groups.classic.classic_member import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    ClassicGroupMember,
    Protocols,
)
from ottla.broker.groups.group import group_metadata_record
from ottla.broker.groups.group_metadata_manager import Client, GroupMetadataManager
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.group_records import GroupMetadataValue
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.messages.sync_group import SyncGroupResponse
from ottla.server.network.context import Reply

log = logging.getLogger(__name__)

# KIP-394
MEMBER_ID_REQUIRED_SINCE = 4
# KIP-814
SKIP_ASSIGNMENT_SINCE = 9


def join(
    shard: GroupMetadataManager, now_ms: int, request: JoinGroupRequest, client: Client, reply: Reply[JoinGroupResponse]
) -> Outcome[JoinGroupResponse]:
    protocols: Protocols = tuple((protocol.name, protocol.metadata) for protocol in request.protocols)
    group = shard.find(ClassicGroup, request.group_id)
    if group is not None:
        return Joining(shard, group, now_ms, request, protocols, client, reply).decide()
    other = shard.groups.get(request.group_id)
    if other is not None and not (other.is_empty and other.should_expire):
        return rejection(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
    if request.member_id:
        return rejection(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
    shard.check_room(request.group_id)
    # The group's record is in the log before a member gets an id. An empty group of another kind with this id gets tombstones.
    value = GroupMetadataValue(protocol=None, leader=None, current_state_timestamp=now_ms)
    records = [] if other is None else other.tombstones()

    def made() -> Outcome[JoinGroupResponse]:
        new = shard.group(ClassicGroup, request.group_id)
        return Joining(shard, new, now_ms, request, protocols, client, reply).decide()

    return Outcome([*records, group_metadata_record(request.group_id, value)], then=made)


def rejection(error: ErrorCode, member_id: str = "") -> Outcome[JoinGroupResponse]:
    return Outcome(response=JoinGroupResponse(error_code=error, member_id=member_id))


class Joining(NamedTuple):
    """One JoinGroup at its group. If the outcome has no response, the member keeps the reply."""

    shard: GroupMetadataManager
    group: ClassicGroup
    now_ms: int
    request: JoinGroupRequest
    protocols: Protocols
    client: Client
    reply: Reply[JoinGroupResponse]

    def decide(self) -> Outcome[JoinGroupResponse]:
        shard, group, request = self.shard, self.group, self.request
        if not self._has_room():
            group.remove(request.member_id)
            # Perhaps the others have only waited for this member.
            full = JoinGroupResponse(error_code=ErrorCode.GROUP_MAX_SIZE_REACHED)
            return Outcome(response=full, then=lambda: rebalance.complete_if_all_joined(shard, group, self.now_ms))
        if group.state is DEAD:
            return rejection(ErrorCode.COORDINATOR_NOT_AVAILABLE, request.member_id)
        if not group.supports(request.protocol_type, self.protocols):
            return rejection(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
        return self._join_known() if request.member_id else self._join_new()

    def _has_room(self) -> bool:
        """Return True if the group is below group.max.size. During a rebalance only rejoined members count, so a lowered limit removes the last ones."""
        group, member_id, size_max = self.group, self.request.member_id, self.shard.config.group_max_size
        if group.state is PREPARING_REBALANCE:
            member = group.members.get(member_id)
            return (member is not None and member.awaiting_join is not None) or group.awaiting_join_count < size_max
        if group.state in (COMPLETING_REBALANCE, STABLE):
            return member_id in group.members or len(group.members) < size_max
        return True

    # ---- a new member

    def _join_new(self) -> Outcome[JoinGroupResponse]:
        group, client, instance_id = self.group, self.client, self.request.group_instance_id
        member_id = f"{client.client_id if instance_id is None else instance_id}-{self.shard.new_uuid()}"
        if instance_id is not None:
            holder = group.static_members.get(instance_id)
            if holder is not None:
                return self._take_over(holder, member_id)
        elif client.api_version >= MEMBER_ID_REQUIRED_SINCE:
            group.pending_members.add(member_id)
            self.shard.story(group.group_id, log).info(
                "Dynamic member with unknown member id joins group %s in %s state;"
                " created a new member id %s and requested the member to rejoin with it",
                group.group_id,
                group.state.value,
                member_id,
            )
            self._begin_session(member_id, self.request.session_timeout_ms)
            return rejection(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        return self._add(member_id)

    def _begin_session(self, member_id: str, timeout_ms: int) -> None:
        """Begin the session of a member that cannot send heartbeats yet."""
        shard, group = self.shard, self.group
        key = rebalance.session_key(group.group_id, member_id)
        shard.timers.schedule(key, timeout_ms, lambda: rebalance.expire_session(shard, group, member_id))

    def _add(self, member_id: str) -> Outcome[JoinGroupResponse]:
        group, request = self.group, self.request
        member = ClassicGroupMember(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client_id=self.client.client_id,
            client_host=self.client.host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocols=self.protocols,
            is_new=True,
            awaiting_join=self.reply,
        )
        if group.state is PREPARING_REBALANCE and group.initial_rebalance:
            group.new_member_added = True
        if not group.members:
            group.protocol_type = request.protocol_type
        group.add(member)
        # The member does not know its id yet, so it cannot heartbeat; this limit keeps lost clients from piling up.
        self._begin_session(member_id, self.shard.config.new_member_join_timeout_ms)
        reason = f"adding new member {member_id}"
        if request.group_instance_id is not None:
            reason += f" with group instance id {request.group_instance_id}"
        reason += rebalance.client_reason(request.reason)
        return rebalance.rebalance_or_complete(self.shard, group, self.now_ms, reason)

    # ---- a known member

    def _join_known(self) -> Outcome[JoinGroupResponse]:
        group, request = self.group, self.request
        member_id = request.member_id
        if member_id in group.pending_members and request.group_instance_id is None:
            self.shard.story(group.group_id, log).info(
                "Pending dynamic member with id %s joins group %s", member_id, group.group_id
            )
            return self._add(member_id)
        try:
            group.validate_member(member_id, request.group_instance_id)
        except KafkaError as error:
            return rejection(error.code, member_id)
        member = group.members[member_id]
        if group.state is EMPTY:
            return rejection(ErrorCode.UNKNOWN_MEMBER_ID, member_id)
        same = member.protocols == self.protocols
        if group.state is COMPLETING_REBALANCE and same:
            # The first response got lost.
            return Outcome(response=rebalance.joined(group, member_id))
        if group.state is STABLE and same and group.leader != member_id:
            return Outcome(response=rebalance.joined(group, member_id))
        # A member with changed metadata, or the leader, rejoins to cause a rebalance, for example for new partitions.
        reason = f"leader {member_id} rejoins" if same else f"updating metadata for member {member_id}"
        reason += f" during {group.state.value}" + rebalance.client_reason(request.reason)
        replies = self._delay(member)
        return Outcome(
            replies=replies, then=lambda: rebalance.rebalance_or_complete(self.shard, group, self.now_ms, reason)
        )

    def _delay(self, member: ClassicGroupMember) -> list[Response]:
        """Take over the metadata of a rejoining member, and delay its request; an older delayed one is answered."""
        group, request = self.group, self.request
        group.update(member, self.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
        group.awaiting_join_count += member.awaiting_join is None
        # Kafka leaves the older request unanswered; its connection would wait for ever. A client that still reads it joins again.
        older = JoinGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
        replies = member.answer_join(older)
        member.awaiting_join = self.reply
        return replies

    # ---- a static member's new process

    def _take_over(self, old_member_id: str, new_member_id: str) -> Outcome[JoinGroupResponse]:
        """Replace the member: a new process has the same instance id."""
        shard, group, now_ms, request = self.shard, self.group, self.now_ms, self.request
        former = group.members[old_member_id]
        shard.story(group.group_id, log).info(
            "Static member with group instance id %s and unknown member id joins group %s in %s state;"
            " replacing the previously mapped member %s by %s",
            request.group_instance_id,
            group.group_id,
            group.state.value,
            old_member_id,
            new_member_id,
        )
        if group.state is STABLE:
            newcomer = replace(
                former,
                member_id=new_member_id,
                protocols=self.protocols,
                rebalance_timeout_ms=request.rebalance_timeout_ms,
                session_timeout_ms=request.session_timeout_ms,
                awaiting_join=None,
                awaiting_sync=None,
            )
            members = [newcomer if member is former else member for member in group.members.values()]
            if select_protocol(members) == group.protocol_name:
                return self._replace_in_log(members, former, newcomer)
        replies = _fence(former)
        group.awaiting_join_count -= any(isinstance(response, JoinGroupResponse) for _, response in replies)
        member = group.rename(old_member_id, new_member_id)
        shard.timers.cancel(rebalance.session_key(group.group_id, old_member_id))
        group.update(member, self.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
        member.awaiting_join = self.reply
        group.awaiting_join_count += 1
        rebalance.restart_session(shard, group, member)
        reason = (
            f"updating metadata for static member {new_member_id} with group instance id {request.group_instance_id}"
        )
        reason += rebalance.client_reason(request.reason)
        if group.state in (STABLE, COMPLETING_REBALANCE):
            # CompletingRebalance: the leader may be assigning to the old id right now, so all members have to join again.
            return Outcome(replies=replies, then=lambda: rebalance.prepare(shard, group, now_ms, reason))
        return Outcome(replies=replies, then=lambda: rebalance.complete_if_all_joined(shard, group, now_ms))

    def _replace_in_log(
        self, members: list[ClassicGroupMember], former: ClassicGroupMember, newcomer: ClassicGroupMember
    ) -> Outcome[JoinGroupResponse]:
        shard, group = self.shard, self.group
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
            if self.client.api_version >= SKIP_ASSIGNMENT_SINCE:
                is_leader = group.leader == newcomer.member_id
                response = rebalance.joined(group, newcomer.member_id, skip_assignment=is_leader)
            else:
                # An older client that is leader would assign again: its response has the leader's former id.
                response = rebalance.joined(group, newcomer.member_id)
                response.leader = old_leader or ""
                response.members = []
            return Outcome(response=response, replies=_fence(former))

        return Outcome([group_metadata_record(group.group_id, value)], then=replayed)


def _fence(former: ClassicGroupMember) -> list[Response]:
    """Complete the former process's pending responses with FENCED_INSTANCE_ID."""
    error = ErrorCode.FENCED_INSTANCE_ID
    joined = JoinGroupResponse(error_code=error, member_id=former.member_id, protocol_name=None)
    return [*former.answer_join(joined), *former.answer_sync(SyncGroupResponse(error_code=error))]
