"""Members of share groups that fall silent are removed; and how a member is removed at all."""

from __future__ import annotations

import logging
from functools import partial
from typing import TypeVar

from ottla.broker.coordinator.outcome import Outcome, Unasked
from ottla.broker.groups.shard import GroupShard
from ottla.broker.groups.share.group import ShareGroup
from ottla.broker.groups.share.records import group_record, member_tombstones
from ottla.protocol.errors import KafkaError

log = logging.getLogger(__name__)

T = TypeVar("T")


def keep_alive(shard: GroupShard, group_id: str, member_id: str) -> None:
    """Begin the member's session again."""
    session_ms = shard.cluster.share_settings(group_id).session_timeout_ms
    key = _session_key(group_id, member_id)
    if not shard.timers.postpone(key, session_ms):
        shard.timers.schedule(key, session_ms, partial(_expire, shard, group_id, member_id))


def remove(shard: GroupShard, group: ShareGroup, member_id: str, response: T | None) -> Outcome[T]:
    """Tombstones of the member, and the group's next epoch."""
    topics, new_hash = shard.cluster.topics(), group.metadata_hash
    if group.seen_topics is not topics or group.is_narrowed_without(member_id):
        new_hash = shard.cluster.hashes.of_group(topics, group.subscribed_topics({member_id: ()}))
    epoch = group_record(group.group_id, group.epoch + 1, new_hash)

    def removed() -> Outcome[T]:
        group.seen_topics = topics
        shard.timers.cancel(_session_key(group.group_id, member_id))
        return Outcome()

    return Outcome([*member_tombstones(group.group_id, member_id), epoch], response, then=removed)


def _session_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    return "share-session", group_id, member_id


def _expire(shard: GroupShard, group_id: str, member_id: str) -> Unasked:
    group = shard.share_groups.get(group_id)
    if group is None or member_id not in group.members:
        return Outcome()
    log.info("[GroupId %s] Member %s fenced from the group because the member session expired.", group_id, member_id)

    def rejected(error: KafkaError) -> Unasked:
        """The member stays, so it needs a session that ends."""
        keep_alive(shard, group_id, member_id)
        return Outcome()

    outcome: Unasked = remove(shard, group, member_id, None)
    outcome.rejected = rejected
    return outcome
