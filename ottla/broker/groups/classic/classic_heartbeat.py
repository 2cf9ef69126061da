"""Heartbeat: a member keeps its session, and the response says whether it must rejoin. It changes only the session's deadline."""

from __future__ import annotations

from ottla.broker.groups.classic import rebalance
from ottla.broker.groups.classic.classic_group import ClassicGroup
from ottla.broker.groups.classic.classic_states import DEAD, EMPTY, PREPARING_REBALANCE
from ottla.broker.groups.consumer import classic_members
from ottla.broker.groups.consumer.consumer_group import ConsumerGroup
from ottla.broker.groups.group_metadata_manager import GroupMetadataManager
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def heartbeat(shard: GroupMetadataManager, request: HeartbeatRequest) -> HeartbeatResponse:
    """Answer a heartbeat. Raises KafkaError if it is not from a member of this generation."""
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
