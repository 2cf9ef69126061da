"""Session and rebalance timeouts of consumer groups: a member without heartbeats, or with overdue revocations, is removed."""

from __future__ import annotations

import logging
from functools import partial

from ottla.broker.coordinator.outcome import Outcome, Unasked
from ottla.broker.groups.consumer import session_keys
from ottla.broker.groups.consumer.group import ConsumerGroup
from ottla.broker.groups.consumer.member import Member
from ottla.broker.groups.consumer.removal import remove
from ottla.broker.groups.consumer.state import UNREVOKED_PARTITIONS
from ottla.broker.groups.shard import GroupShard
from ottla.protocol.errors import KafkaError

log = logging.getLogger(__name__)


def keep_alive(shard: GroupShard, group: ConsumerGroup, member: Member) -> None:
    """Restart the member's session timer, and its rebalance timer if it has to revoke partitions."""
    group_id, member_id = group.group_id, member.member_id
    classic = member.metadata.classic_member_metadata
    if classic is None:
        session_ms = shard.cluster.consumer_settings(group_id).session_timeout_ms
    else:
        session_ms = classic.session_timeout_ms
    key = session_keys.session(group_id, member_id)
    if not shard.timers.postpone(key, session_ms):
        shard.timers.schedule(key, session_ms, partial(_expire, shard, group_id, member_id))
    key = session_keys.revocation(group_id, member_id)
    if member.current.state is not UNREVOKED_PARTITIONS or classic is not None:
        shard.timers.cancel(key)
    elif key not in shard.timers:
        timeout_ms, epoch = member.metadata.rebalance_timeout_ms, member.current.epoch
        shard.timers.schedule(key, timeout_ms, partial(_time_out, shard, group_id, member_id, epoch))


def _expire(shard: GroupShard, group_id: str, member_id: str) -> Unasked:
    group = shard.consumer_groups.get(group_id)
    if group is None or member_id not in group.members:
        return Outcome()
    return fence(shard, group, member_id, "the member session expired")


def _time_out(shard: GroupShard, group_id: str, member_id: str, epoch: int) -> Unasked:
    group = shard.consumer_groups.get(group_id)
    member = None if group is None else group.members.get(member_id)
    if group is None or member is None or member.current.epoch != epoch:
        return Outcome()
    timeout_ms = member.metadata.rebalance_timeout_ms
    return fence(shard, group, member_id, f"it failed to transition from epoch {epoch} within {timeout_ms}ms")


def fence(shard: GroupShard, group: ConsumerGroup, member_id: str, why: str) -> Unasked:
    log.info("[GroupId %s] Member %s fenced from the group because %s.", group.group_id, member_id, why)

    def rejected(error: KafkaError) -> Unasked:
        """The member stays because the append failed, so its session timer starts again."""
        keep_alive(shard, group, group.members[member_id])
        return Outcome()

    outcome: Unasked = remove(shard, group, {member_id}, None)
    outcome.rejected = rejected
    return outcome
