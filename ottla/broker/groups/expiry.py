"""Expiry of committed offsets, and of groups that have none left (offsets.retention.minutes, KIP-211).

    group                                     an offset expires, retention after
    Empty, had members                        the group became Empty
    Stable, consumers, topic not subscribed   it was committed
    simple: no members ever                   it was committed
    of the consumer protocol, not subscribed  it was committed
    of the streams protocol, not read         it was committed
    any other                                 never

An offset with an expiry of its own (OffsetCommit v2-4) goes by that.
"""

from __future__ import annotations

import logging

from ottla.broker.coordinator.outcome import CoordinatorRecord, Unasked
from ottla.broker.coordinator.timers import sweep
from ottla.broker.groups.group_metadata_manager import GroupMetadataManager
from ottla.broker.groups.state.committed import NO_TIMESTAMP
from ottla.broker.groups.state.group import Group
from ottla.broker.groups.state.group_records import offset_commit_record

log = logging.getLogger(__name__)


SWEEP_KEY = "expire-offsets"


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
            log.info("Removed %d expired offsets of group %s", len(records) - before, group_id)
        if is_over and group.is_empty:
            log.info("Group %s transitioned to Dead in generation %d: its offsets expired", group_id, group.generation)
            records.extend(group.tombstones())
        return 1 + shard.offsets.count(group_id)

    return sweep(shard.timers, SWEEP_KEY, iter([*shard.groups]), look)


def _expire_offsets(shard: GroupMetadataManager, group: Group, now_ms: int, records: list[CoordinatorRecord]) -> bool:
    """Add tombstones of the group's expired offsets. Returns True if no offset is left."""
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
