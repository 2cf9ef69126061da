"""Session and rebalance timeouts of consumer groups: a member without heartbeats, or with overdue revocations, is removed."""

from __future__ import annotations

from ottla.broker.coordinator.outcome import Unasked
from ottla.broker.groups.consumer.group import ConsumerGroup
from ottla.broker.groups.consumer.member import Member
from ottla.broker.groups.consumer.removal import remove
from ottla.broker.groups.consumer.state import UNREVOKED_PARTITIONS
from ottla.broker.groups.modern.sessions import Sessions
from ottla.broker.groups.shard import GroupShard


def keep_alive(shard: GroupShard, group: ConsumerGroup, member: Member, *, has_moved: bool = False) -> None:
    """Restart the member's session, and its rebalance timeout if it `has_moved` to a step in which it has to revoke partitions."""
    group_id, member_id = group.group_id, member.member_id
    classic = member.metadata.classic_member_metadata
    if classic is None:
        session_ms = shard.cluster.consumer_settings(group_id).session_timeout_ms
    else:
        session_ms = classic.session_timeout_ms
    SESSIONS.restart(shard, group_id, member_id, session_ms)
    if member.current.state is not UNREVOKED_PARTITIONS or classic is not None:
        SESSIONS.released(shard, group_id, member_id)
    else:
        timeout_ms = member.metadata.rebalance_timeout_ms
        SESSIONS.await_release(shard, group_id, member_id, member.current.epoch, timeout_ms, has_moved=has_moved)


def _find(shard: GroupShard, group_id: str) -> ConsumerGroup | None:
    return shard.find(ConsumerGroup, group_id)


def _remove(shard: GroupShard, group: ConsumerGroup, member_id: str) -> Unasked:
    outcome: Unasked = remove(shard, group, {member_id}, None)
    return outcome


def _keep_alive(shard: GroupShard, group: ConsumerGroup, member_id: str) -> None:
    keep_alive(shard, group, group.members[member_id])


SESSIONS = Sessions("consumer", _find, _remove, _keep_alive)
fence = SESSIONS.fence
