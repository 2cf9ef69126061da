"""A member leaves with a last heartbeat: for good (epoch -1), or temporarily, which static members do at a restart (epoch -2)."""

from __future__ import annotations

import logging
from dataclasses import replace

from ottla.broker.coordinator.outcome import Outcome
from ottla.broker.groups.consumer.consumer_group import ConsumerGroup
from ottla.broker.groups.consumer.consumer_member import Member
from ottla.broker.groups.consumer.consumer_records import current_record
from ottla.broker.groups.consumer.removal import remove
from ottla.broker.groups.group_metadata_manager import GroupMetadataManager
from ottla.broker.groups.modern.modern_group import STATIC_LEAVING_EPOCH
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

log = logging.getLogger(__name__)


def leave(
    shard: GroupMetadataManager, request: ConsumerGroupHeartbeatRequest
) -> Outcome[ConsumerGroupHeartbeatResponse]:
    group = shard.group(ConsumerGroup, request.group_id)
    member = _leaving(group, request)
    response = ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)
    if request.member_epoch == STATIC_LEAVING_EPOCH:
        log.info(
            "[GroupId %s] Static Member %s with instance id %s temporarily left the consumer group.",
            group.group_id,
            member.member_id,
            request.instance_id,
        )
        # The static member keeps its assignment until its session expires.
        current = replace(member.current, epoch=STATIC_LEAVING_EPOCH, pending_revocation={})
        return Outcome([current_record(group.group_id, member.member_id, current)], response)
    log.info("[GroupId %s] Member %s left the consumer group.", group.group_id, member.member_id)
    return remove(shard, group, {member.member_id}, response)


def _leaving(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> Member:
    if request.instance_id is None:
        return group.member(request.member_id)
    holder = group.members.get(group.static_members.get(request.instance_id, ""))
    if holder is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {request.instance_id} is unknown.")
    if holder.member_id != request.member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {request.member_id} with instance id {request.instance_id} was fenced by member"
            f" {holder.member_id}.",
        )
    return holder
