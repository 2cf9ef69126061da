"""Members that fall silent, or do not close tasks in time, are removed; and how a member is removed at all."""

from __future__ import annotations

from ottla.broker.coordinator.outcome import CoordinatorRecord, Outcome, Unasked
from ottla.broker.groups.modern.sessions import Sessions
from ottla.broker.groups.shard import GroupShard
from ottla.broker.groups.streams.group import StreamsGroup
from ottla.broker.groups.streams.member import Member
from ottla.broker.groups.streams.records import RECORDS
from ottla.broker.groups.streams.state import UNREVOKED_TASKS


def keep_alive(shard: GroupShard, group: StreamsGroup, member: Member, *, has_moved: bool = False) -> None:
    """Restart the member's session, and its rebalance timeout if it `has_moved` to a step in which it has to close tasks."""
    group_id, member_id = group.group_id, member.member_id
    SESSIONS.restart(shard, group_id, member_id, shard.cluster.streams_settings(group_id).session_timeout_ms)
    if member.current.state is not UNREVOKED_TASKS:
        SESSIONS.released(shard, group_id, member_id)
    else:
        timeout_ms = member.metadata.rebalance_timeout_ms
        SESSIONS.await_release(shard, group_id, member_id, member.current.epoch, timeout_ms, has_moved=has_moved)


def removal(group: StreamsGroup, member_id: str) -> list[CoordinatorRecord]:
    """Tombstones of the member, and the group's next epoch."""
    return [*RECORDS.member_tombstones(group.group_id, member_id), group.next_epoch(group.metadata_hash)]


def _find(shard: GroupShard, group_id: str) -> StreamsGroup | None:
    return shard.find(StreamsGroup, group_id)


def _remove(shard: GroupShard, group: StreamsGroup, member_id: str) -> Unasked:
    def removed() -> Unasked:
        SESSIONS.forget(shard, group.group_id, member_id)
        return Outcome()

    return Outcome(removal(group, member_id), then=removed)


def _keep_alive(shard: GroupShard, group: StreamsGroup, member_id: str) -> None:
    keep_alive(shard, group, group.members[member_id])


SESSIONS = Sessions("streams", _find, _remove, _keep_alive)
forget = SESSIONS.forget
