"""A shard at work, as the coordinator runtime uses it: what follows from loading and unloading, and how groups expire.

Committed offsets expire, and groups that have none left (offsets.retention.minutes, KIP-211):

    group                                     an offset expires, retention after
    Empty, had members                        the group became Empty
    Stable, consumers, topic not subscribed   it was committed
    simple: no members ever                   it was committed
    of the consumer protocol, not subscribed  it was committed
    of the streams protocol, not read         it was committed
    any other                                 never

An offset that was committed with an expiry of its own (OffsetCommit v2-4) expires at that time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from typing import Any

from ottla.broker.coordinator.outcome import CoordinatorRecord, Outcome, Response, Unasked
from ottla.broker.coordinator.timers import sweep
from ottla.broker.groups import offsets
from ottla.broker.groups.classic import rebalance
from ottla.broker.groups.classic.classic_group import ClassicGroup, recorded_group
from ottla.broker.groups.classic.classic_member import CAN_REBALANCE, DEAD
from ottla.broker.groups.committed import NO_TIMESTAMP
from ottla.broker.groups.consumer.consumer_group import ConsumerGroup
from ottla.broker.groups.consumer.migration import instead_of_removal
from ottla.broker.groups.group import Group, GroupType, offset_commit_record
from ottla.broker.groups.group_metadata_manager import GroupKinds, GroupMetadataManager
from ottla.broker.groups.heartbeats import keep_alive
from ottla.broker.groups.share.share_group import ShareGroup
from ottla.broker.groups.streams.streams_group import StreamsGroup
from ottla.protocol.errors import ErrorCode

log = logging.getLogger(__name__)

SWEEP_KEY = "expire-offsets"
EXPIRY_KEY = "expire-group-metadata"
SESSIONS_KEY = "sessions-after-load"
#: The beginning of a session schedules a timer, and so counts as this many looks of a sweep. Each turn has a limit of looks.
SESSION_LOOKS = 4


class GroupCoordinatorShard(GroupMetadataManager):
    """A shard of group coordination with its timers."""

    kinds = GroupKinds(
        ClassicGroup,
        recorded_group,
        {key: kind for kind in (ConsumerGroup, ShareGroup, StreamsGroup) for key in kind.record_keys()},
        instead_of_removal,
    )

    def on_loaded(self, now_ms: int) -> Unasked:
        """Give each member a full session, some in each turn; a group over a lowered group.max.size rebalances."""
        self._is_loaded = True
        self._schedule_expiry()
        sweep(self.timers, SESSIONS_KEY, self._members(), self._begin_session)
        return offsets.delete_of_unknown_topics(self)

    def _members(self) -> Iterator[tuple[Group, Any]]:
        for group in list(self.groups.values()):
            if group.group_id in self.unreadable:
                continue
            if group.type is GroupType.CLASSIC and len(group.members) > self.config.group_max_size:
                self.timers.schedule(("size", group.group_id), 0, partial(self._rebalance_too_large, group.group_id))
            for member in list(group.members.values()):
                yield group, member

    def _begin_session(self, of: tuple[Any, Any], records: list[CoordinatorRecord]) -> int:
        """Other requests are served between the turns: a member that has left meanwhile gets no session."""
        group, member = of
        known: Any = self.groups.get(group.group_id)
        if known is group and group.members.get(member.member_id) is member:
            begin = rebalance.restart_session if group.type is GroupType.CLASSIC else keep_alive
            begin(self, group, member)
        return SESSION_LOOKS

    def _rebalance_too_large(self, group_id: str) -> Unasked:
        group = self.find(ClassicGroup, group_id)
        if group is None or group.state not in CAN_REBALANCE:
            return Outcome()
        reason = f"loaded with {len(group.members)} members, over group.max.size {self.config.group_max_size}"
        return rebalance.prepare(self, group, self.wall_ms(), reason)

    def on_unloaded(self) -> Unasked:
        replies: list[Response] = []
        for group in self.groups_of(ClassicGroup):
            for member in group.members.values():
                replies += member.answers(ErrorCode.NOT_COORDINATOR)
                member.awaiting_join = member.awaiting_sync = None
            group.transition(DEAD, self.wall_ms())
        return Outcome(replies=replies)

    def _schedule_expiry(self) -> None:
        self.timers.schedule(EXPIRY_KEY, self.config.offsets_retention_check_interval_ms, self._expire)

    def _expire(self) -> Unasked:
        self._schedule_expiry()
        return expire(self, self.expiry_ms())


def expire(shard: GroupMetadataManager, now_ms: int) -> Unasked:
    """Write tombstones for the expired offsets of this shard, a bounded number of groups in each turn of the loop."""

    def look(group_id: str, records: list[CoordinatorRecord]) -> int:
        group = shard.groups.get(group_id)
        if group is None or not group.should_expire or group_id in shard.unreadable:
            return 1
        before = len(records)
        is_over = _expire_offsets(shard, group, now_ms, records)
        if len(records) > before:
            shard.counts.offset_expirations += len(records) - before
            shard.story(group_id, log).info("Removed %d expired offsets of group %s", len(records) - before, group_id)
        if is_over and group.is_empty:
            shard.story(group_id, log).info(
                "Group %s transitioned to Dead in generation %d: its offsets expired", group_id, group.generation
            )
            records.extend(group.tombstones())
        return 1 + shard.offsets.count(group_id)

    return sweep(shard.timers, SWEEP_KEY, iter([*shard.groups]), look)


def _expire_offsets(shard: GroupMetadataManager, group: Group, now_ms: int, records: list[CoordinatorRecord]) -> bool:
    """Add tombstones of the group's expired offsets. Return True if no offset is left."""
    topics = shard.offsets.of_group(group.group_id)
    pending = shard.offsets.pending_partitions(group.group_id)
    if not topics:
        return not pending
    since = group.offset_expiration()
    if since is None:
        return False
    all_expired = True
    for topic, partitions in topics.items():
        if group.is_subscribed_to(topic):
            all_expired = False
            continue
        for partition, offset in partitions.items():
            if offset.expire_timestamp_ms != NO_TIMESTAMP:
                expired = now_ms >= offset.expire_timestamp_ms
            else:
                expired = now_ms - since(offset) >= shard.config.offsets_retention_ms
            if expired and (topic, partition) not in pending:
                records.append(offset_commit_record(group.group_id, topic, partition, None))
            else:
                all_expired = False
    return all_expired and not pending
