"""Session and rebalance timeouts of consumer groups: a member without heartbeats, or with overdue revocations, is removed."""

from __future__ import annotations

import logging
from functools import partial

from ottla.broker.coordinator.outcome import CoordinatorRecord, Outcome, Unasked
from ottla.broker.groups.consumer.group import ConsumerGroup
from ottla.broker.groups.consumer.member import Member
from ottla.broker.groups.consumer.records import group_record, member_tombstones
from ottla.broker.groups.consumer.state import UNREVOKED_PARTITIONS
from ottla.broker.groups.modern.topics import metadata_hash
from ottla.broker.groups.shard import GroupShard
from ottla.protocol.errors import KafkaError

log = logging.getLogger(__name__)


def keep_alive(shard: GroupShard, group: ConsumerGroup, member: Member) -> None:
    """Restart the member's session timer, and its rebalance timer if it has to revoke partitions."""
    group_id, member_id = group.group_id, member.member_id
    session_ms = shard.cluster.consumer_settings(group_id).session_timeout_ms
    key = _session_key(group_id, member_id)
    if not shard.timers.postpone(key, session_ms):
        shard.timers.schedule(key, session_ms, partial(_expire, shard, group_id, member_id))
    key = _rebalance_key(group_id, member_id)
    if member.current.state is not UNREVOKED_PARTITIONS:
        shard.timers.cancel(key)
    elif key not in shard.timers:
        timeout_ms, epoch = member.metadata.rebalance_timeout_ms, member.current.epoch
        shard.timers.schedule(key, timeout_ms, partial(_time_out, shard, group_id, member_id, epoch))


def removal(shard: GroupShard, group: ConsumerGroup, member_id: str) -> list[CoordinatorRecord]:
    """Returns the tombstones of the member and the record of the next group epoch."""
    names = group.subscribed_topics({member_id: ()})
    epoch = group_record(group.group_id, group.epoch + 1, metadata_hash(shard.cluster.topics(), names))
    return [*member_tombstones(group.group_id, member_id), epoch]


def forget(shard: GroupShard, group_id: str, member_id: str) -> None:
    """Cancel the timers of a removed member."""
    shard.timers.cancel(_session_key(group_id, member_id))
    shard.timers.cancel(_rebalance_key(group_id, member_id))


def _session_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    return "consumer-session", group_id, member_id


def _rebalance_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    return "consumer-rebalance", group_id, member_id


def _expire(shard: GroupShard, group_id: str, member_id: str) -> Unasked:
    group = shard.consumer_groups.get(group_id)
    if group is None or member_id not in group.members:
        return Outcome()
    log.info("[GroupId %s] Member %s fenced from the group because the member session expired.", group_id, member_id)
    return _fenced(shard, group, member_id)


def _time_out(shard: GroupShard, group_id: str, member_id: str, epoch: int) -> Unasked:
    group = shard.consumer_groups.get(group_id)
    member = None if group is None else group.members.get(member_id)
    if group is None or member is None or member.current.epoch != epoch:
        return Outcome()
    log.info(
        "[GroupId %s] Member %s fenced from the group because it failed to transition from epoch %d within %dms.",
        group_id,
        member_id,
        epoch,
        member.metadata.rebalance_timeout_ms,
    )
    return _fenced(shard, group, member_id)


def _fenced(shard: GroupShard, group: ConsumerGroup, member_id: str) -> Unasked:
    def removed() -> Unasked:
        forget(shard, group.group_id, member_id)
        return Outcome()

    def rejected(error: KafkaError) -> Unasked:
        """The member stays because the append failed, so its session timer starts again."""
        keep_alive(shard, group, group.members[member_id])
        return Outcome()

    return Outcome(removal(shard, group, member_id), then=removed, rejected=rejected)
