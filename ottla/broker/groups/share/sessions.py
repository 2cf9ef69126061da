"""Sessions of the members of share groups (KIP-932), and a member's removal."""

from __future__ import annotations

from typing import TypeVar

from ottla.broker.coordinator.outcome import Outcome, Unasked
from ottla.broker.groups.modern.sessions import Sessions
from ottla.broker.groups.shard import GroupShard
from ottla.broker.groups.share.group import ShareGroup
from ottla.broker.groups.share.records import RECORDS

T = TypeVar("T")


def keep_alive(shard: GroupShard, group_id: str, member_id: str) -> None:
    """Restart the member's session."""
    SESSIONS.restart(shard, group_id, member_id, shard.cluster.share_settings(group_id).session_timeout_ms)


def remove(shard: GroupShard, group: ShareGroup, member_id: str, response: T | None) -> Outcome[T]:
    """Tombstones of the member, and the group's next epoch."""
    topics, new_hash = shard.cluster.topics(), group.metadata_hash
    if group.seen_topics is not topics or group.is_narrowed_without(member_id):
        names = group.subscribed_topics({member_id: ()})
        new_hash = shard.cluster.hashes.of_group(topics, names, at_once=True)

    def removed() -> Outcome[T]:
        group.seen_topics = topics
        SESSIONS.forget(shard, group.group_id, member_id)
        return Outcome()

    return Outcome(
        [*RECORDS.member_tombstones(group.group_id, member_id), group.next_epoch(new_hash)], response, then=removed
    )


def _find(shard: GroupShard, group_id: str) -> ShareGroup | None:
    return shard.find(ShareGroup, group_id)


def _remove(shard: GroupShard, group: ShareGroup, member_id: str) -> Unasked:
    outcome: Unasked = remove(shard, group, member_id, None)
    return outcome


def _keep_alive(shard: GroupShard, group: ShareGroup, member_id: str) -> None:
    keep_alive(shard, group.group_id, member_id)


SESSIONS = Sessions("share", _find, _remove, _keep_alive)
