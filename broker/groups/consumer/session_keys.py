"""The timers of a member, by their keys."""

from __future__ import annotations

from ottla.broker.groups.shard import GroupShard


def session(group_id: str, member_id: str) -> tuple[str, str, str]:
    """No heartbeat came."""
    return "consumer-session", group_id, member_id


def revocation(group_id: str, member_id: str) -> tuple[str, str, str]:
    """It does not give up what it has to."""
    return "consumer-rebalance", group_id, member_id


def rejoin(group_id: str, member_id: str) -> tuple[str, str, str]:
    """A classic member does not join again, as it should."""
    return "consumer-join", group_id, member_id


def sync(group_id: str, member_id: str) -> tuple[str, str, str]:
    """A classic member has joined, and its SyncGroup is missing."""
    return "consumer-sync", group_id, member_id


def forget(shard: GroupShard, group_id: str, member_id: str) -> None:
    """Cancel the timers of a member that is gone."""
    for key in (session, revocation, rejoin, sync):
        shard.timers.cancel(key(group_id, member_id))
