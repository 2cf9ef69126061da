"""The timers that a classic member of a consumer group has besides its session, by their keys."""

from __future__ import annotations

from ottla.broker.groups.modern import sessions
from ottla.broker.groups.shard import GroupShard


def rejoin(group_id: str, member_id: str) -> tuple[str, str, str]:
    """A classic member does not join again, as it should."""
    return "consumer-join", group_id, member_id


def sync(group_id: str, member_id: str) -> tuple[str, str, str]:
    """A classic member has joined, and its SyncGroup is missing."""
    return "consumer-sync", group_id, member_id


def forget(shard: GroupShard, group_id: str, member_id: str) -> None:
    """Cancel all timers of a member that is gone."""
    sessions.forget(shard, "consumer", group_id, member_id)
    for key in (rejoin, sync):
        shard.timers.cancel(key(group_id, member_id))
