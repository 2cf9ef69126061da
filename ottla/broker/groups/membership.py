"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: decided by a classic group, or by a consumer group for its classic members (KIP-848)."""

from __future__ import annotations

from ottla.broker.coordinator.outcome import Outcome
from ottla.broker.groups.classic import join as classic_join
from ottla.broker.groups.classic import leave as classic_leave
from ottla.broker.groups.classic import rebalance
from ottla.broker.groups.classic import sync as classic_sync
from ottla.broker.groups.consumer import classic_members
from ottla.broker.groups.group_metadata_manager import Client, GroupMetadataManager
from ottla.broker.groups.state.classic_group import ClassicGroup
from ottla.broker.groups.state.classic_states import DEAD, EMPTY, PREPARING_REBALANCE
from ottla.broker.groups.state.consumer_group import ConsumerGroup
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.server.network.reply import Reply


def join(
    shard: GroupMetadataManager, now_ms: int, request: JoinGroupRequest, client: Client, reply: Reply[JoinGroupResponse]
) -> Outcome[JoinGroupResponse]:
    """Decide on a JoinGroup; without a response in the outcome the member keeps the reply."""
    consumer_group = shard.find(ConsumerGroup, request.group_id)
    if consumer_group is not None and consumer_group.members:
        return classic_members.join(shard, consumer_group, now_ms, request, client)
    return classic_join.join(shard, now_ms, request, client, reply)


def sync(
    shard: GroupMetadataManager, now_ms: int, request: SyncGroupRequest, reply: Reply[SyncGroupResponse]
) -> Outcome[SyncGroupResponse]:
    """Decide on a SyncGroup; without a response in the outcome the member keeps the reply."""
    consumer_group = shard.find(ConsumerGroup, request.group_id)
    if consumer_group is not None:
        return classic_members.sync(shard, consumer_group, request)
    return classic_sync.sync(shard, now_ms, request, reply)


def heartbeat(shard: GroupMetadataManager, request: HeartbeatRequest) -> HeartbeatResponse:
    """A member keeps its session, and the response says whether it must rejoin. Only the deadline of the session changes.

    Raises KafkaError if the heartbeat is not from a member of this generation.
    """
    group = shard.find(ClassicGroup, request.group_id)
    if group is None:
        consumer_group = shard.find(ConsumerGroup, request.group_id)
        if consumer_group is not None:
            return classic_members.heartbeat(shard, consumer_group, request)
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    if group.state is DEAD:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    group.validate_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    assert group.state is not EMPTY
    rebalance.restart_session(shard, group, group.members[request.member_id])
    if group.state is PREPARING_REBALANCE:
        return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    return HeartbeatResponse()


def leave(shard: GroupMetadataManager, now_ms: int, request: LeaveGroupRequest) -> Outcome[LeaveGroupResponse]:
    """Each member has a result of its own; one rebalance follows for all that left."""
    consumer_group = shard.find(ConsumerGroup, request.group_id)
    if consumer_group is not None:
        return classic_members.leave(shard, consumer_group, request)
    return classic_leave.leave(shard, now_ms, request)
