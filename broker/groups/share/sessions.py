"""Members of share groups that fall silent are removed; and how a member is removed at all."""

from __future__ import annotations

from ottla.broker.coordinator.outcome import CoordinatorRecord, Outcome, Unasked
from ottla.broker.groups.modern.sessions import Sessions
from ottla.broker.groups.shard import GroupShard
from ottla.broker.groups.share.group import ShareGroup
from ottla.broker.groups.share.records import group_record, member_tombstones


def keep_alive(shard: GroupShard, group_id: str, member_id: str) -> None:
    """Restart the member's session."""
    SESSIONS.restart(shard, group_id, member_id, shard.cluster.share_settings(group_id).session_timeout_ms)


def removal(shard: GroupShard, group: ShareGroup, member_id: str) -> list[CoordinatorRecord]:
    """Tombstones of the member, and the group's next epoch."""
    names = group.subscribed_topics({member_id: ()})
    epoch = group_record(group.group_id, group.epoch + 1, shard.cluster.hashes.of_group(shard.cluster.topics(), names))
    return [*member_tombstones(group.group_id, member_id), epoch]


def _find(shard: GroupShard, group_id: str) -> ShareGroup | None:
    return shard.share_groups.get(group_id)


def _remove(shard: GroupShard, group: ShareGroup, member_id: str) -> Unasked:
    return Outcome(removal(shard, group, member_id))


def _keep_alive(shard: GroupShard, group: ShareGroup, member_id: str) -> None:
    keep_alive(shard, group.group_id, member_id)


SESSIONS = Sessions("share", _find, _remove, _keep_alive)
forget = SESSIONS.forget
