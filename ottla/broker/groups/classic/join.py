"""JoinGroup: a new member joins, or a known one rejoins with its current protocols.

New dynamic members are first given an id and sent back to join with it, so that a client whose responses get lost does
not leave a trail of members (KIP-394, v4+). Members with a group.instance.id are in `static.py`.
"""

from __future__ import annotations

import logging

from ottla.broker.coordinator.outcome import Outcome, Response
from ottla.broker.groups.classic import rebalance, static
from ottla.broker.groups.group_metadata_manager import Client, GroupMetadataManager
from ottla.broker.groups.state.classic_group import ClassicGroup
from ottla.broker.groups.state.classic_member import Member, Protocols
from ottla.broker.groups.state.classic_states import COMPLETING_REBALANCE, DEAD, EMPTY, PREPARING_REBALANCE, STABLE
from ottla.broker.groups.state.group_records import group_metadata_record
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.group_records import GroupMetadataValue
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.server.network.reply import Reply

log = logging.getLogger(__name__)

# KIP-394
MEMBER_ID_REQUIRED_SINCE = 4


def join(
    shard: GroupMetadataManager, now_ms: int, request: JoinGroupRequest, client: Client, reply: Reply[JoinGroupResponse]
) -> Outcome[JoinGroupResponse]:
    group = shard.find(ClassicGroup, request.group_id)
    if group is not None:
        return _join(shard, group, now_ms, request, client, reply)
    other = shard.groups.get(request.group_id)
    if other is not None and not (other.is_empty and other.should_expire):
        return rejection(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
    if request.member_id:
        return rejection(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
    shard.check_room(request.group_id)
    # The group is in the log before a member gets an id. A group of another kind without members gives its place up.
    value = GroupMetadataValue(protocol=None, leader=None, current_state_timestamp=now_ms)
    records = [] if other is None else other.tombstones()
    return Outcome(
        [*records, group_metadata_record(request.group_id, value)],
        then=lambda: _join(shard, shard.group(ClassicGroup, request.group_id), now_ms, request, client, reply),
    )


def _join(
    shard: GroupMetadataManager,
    group: ClassicGroup,
    now_ms: int,
    request: JoinGroupRequest,
    client: Client,
    reply: Reply[JoinGroupResponse],
) -> Outcome[JoinGroupResponse]:
    protocols: Protocols = tuple((protocol.name, protocol.metadata) for protocol in request.protocols)
    if not _has_room(shard, group, request.member_id):
        group.remove(request.member_id)
        # The others may have waited for this one only.
        full = JoinGroupResponse(error_code=ErrorCode.GROUP_MAX_SIZE_REACHED)
        return Outcome(response=full, then=lambda: rebalance.complete_if_all_joined(shard, group, now_ms))
    if group.state is DEAD:
        return rejection(ErrorCode.COORDINATOR_NOT_AVAILABLE, request.member_id)
    if not group.supports(request.protocol_type, protocols):
        return rejection(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
    if request.member_id:
        return _join_known(shard, group, now_ms, request, protocols, client, reply)
    return _join_new(shard, group, now_ms, request, protocols, client, reply)


def rejection(error: ErrorCode, member_id: str = "") -> Outcome[JoinGroupResponse]:
    return Outcome(response=JoinGroupResponse(error_code=error, member_id=member_id))


def _has_room(shard: GroupMetadataManager, group: ClassicGroup, member_id: str) -> bool:
    """Returns True if the group is below group.max.size. During a rebalance only rejoined members count, so a lowered limit removes the last ones."""
    size_max = shard.config.group_max_size
    if group.state is PREPARING_REBALANCE:
        member = group.members.get(member_id)
        return (member is not None and member.awaiting_join is not None) or group.awaiting_join_count < size_max
    if group.state in (COMPLETING_REBALANCE, STABLE):
        return member_id in group.members or len(group.members) < size_max
    return True


def _join_new(
    shard: GroupMetadataManager,
    group: ClassicGroup,
    now_ms: int,
    request: JoinGroupRequest,
    protocols: Protocols,
    client: Client,
    reply: Reply[JoinGroupResponse],
) -> Outcome[JoinGroupResponse]:
    instance_id = request.group_instance_id
    member_id = f"{client.client_id if instance_id is None else instance_id}-{shard.new_uuid()}"
    if instance_id is not None:
        holder = group.static_members.get(instance_id)
        if holder is not None:
            return static.replace(shard, group, now_ms, request, protocols, client, reply, holder, member_id)
    elif client.api_version >= MEMBER_ID_REQUIRED_SINCE:
        group.pending_members.add(member_id)
        log.info(
            "Dynamic member with unknown member id joins group %s in %s state;"
            " created a new member id %s and requested the member to rejoin with it",
            group.group_id,
            group.state.value,
            member_id,
        )
        shard.timers.schedule(
            rebalance.session_key(group.group_id, member_id),
            request.session_timeout_ms,
            lambda: rebalance.expire_session(shard, group, member_id),
        )
        return rejection(ErrorCode.MEMBER_ID_REQUIRED, member_id)
    return _add(shard, group, now_ms, request, protocols, client, reply, member_id)


def _add(
    shard: GroupMetadataManager,
    group: ClassicGroup,
    now_ms: int,
    request: JoinGroupRequest,
    protocols: Protocols,
    client: Client,
    reply: Reply[JoinGroupResponse],
    member_id: str,
) -> Outcome[JoinGroupResponse]:
    member = Member(
        member_id=member_id,
        group_instance_id=request.group_instance_id,
        client_id=client.client_id,
        client_host=client.host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocols=protocols,
        is_new=True,
        awaiting_join=reply,
    )
    if group.state is PREPARING_REBALANCE and group.initial_rebalance:
        group.new_member_added = True
    if not group.members:
        group.protocol_type = request.protocol_type
    group.add(member)
    # It does not know its id yet, so it cannot heartbeat; this limit keeps lost clients from piling up.
    shard.timers.schedule(
        rebalance.session_key(group.group_id, member_id),
        shard.config.new_member_join_timeout_ms,
        lambda: rebalance.expire_session(shard, group, member_id),
    )
    reason = f"adding new member {member_id}"
    if request.group_instance_id is not None:
        reason += f" with group instance id {request.group_instance_id}"
    return rebalance.rebalance_or_complete(shard, group, now_ms, reason + rebalance.client_reason(request.reason))


def _join_known(
    shard: GroupMetadataManager,
    group: ClassicGroup,
    now_ms: int,
    request: JoinGroupRequest,
    protocols: Protocols,
    client: Client,
    reply: Reply[JoinGroupResponse],
) -> Outcome[JoinGroupResponse]:
    member_id = request.member_id
    if member_id in group.pending_members and request.group_instance_id is None:
        log.info("Pending dynamic member with id %s joins group %s", member_id, group.group_id)
        return _add(shard, group, now_ms, request, protocols, client, reply, member_id)
    try:
        group.validate_member(member_id, request.group_instance_id)
    except KafkaError as error:
        return Outcome(response=JoinGroupResponse(error_code=error.code, member_id=member_id))
    member = group.members[member_id]
    if group.state is EMPTY:
        return rejection(ErrorCode.UNKNOWN_MEMBER_ID, member_id)
    same = member.protocols == protocols
    if group.state is COMPLETING_REBALANCE and same:
        # Its first response got lost.
        return Outcome(response=rebalance.joined(group, member_id))
    if group.state is STABLE and same and group.leader != member_id:
        return Outcome(response=rebalance.joined(group, member_id))
    # A member with changed metadata, or the leader, rejoins to cause a rebalance, for example for new partitions.
    reason = f"leader {member_id} rejoins" if same else f"updating metadata for member {member_id}"
    reason += f" during {group.state.value}" + rebalance.client_reason(request.reason)
    replies = park(group, member, protocols, request, reply)
    return Outcome(replies=replies, then=lambda: rebalance.rebalance_or_complete(shard, group, now_ms, reason))


def park(
    group: ClassicGroup,
    member: Member,
    protocols: Protocols,
    request: JoinGroupRequest,
    reply: Reply[JoinGroupResponse],
) -> list[Response]:
    """Take over the metadata of a rejoining member, and delay its request; an older delayed one is answered."""
    replies: list[Response] = []
    group.update(member, protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
    if member.awaiting_join is None:
        group.awaiting_join_count += 1
    else:
        # Kafka leaves the older request unanswered; its connection would wait for ever. A client that still reads it joins again.
        older = JoinGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
        replies.append((member.awaiting_join, older))
    member.awaiting_join = reply
    return replies
