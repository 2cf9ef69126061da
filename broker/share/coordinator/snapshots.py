"""Snapshots of share partitions that do not change, and tombstones of those whose topic is gone: so that the log can be pruned.

The log can lose only a prefix, and the snapshot of a share partition that does not change would keep all that other share
partitions write after it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ottla.broker.coordinator.outcome import CoordinatorRecord, Outcome, Unasked
from ottla.broker.share.coordinator.records import snapshot_record
from ottla.broker.share.coordinator.shard import ShareShard, tombstones


def delete_of_topics(shard: ShareShard, now_ms: int, topic_ids: Collection[bytes]) -> Unasked:
    return Outcome(tombstones([key for key in shard.states if key.topic_id in topic_ids]), atomic=False)


def snapshot_cold(shard: ShareShard, now_ms: int) -> Unasked:
    """Nothing while the log holds no more than one record of each share partition."""
    if shard.newest_offset + 1 - shard.redundant_before() <= len(shard.states):
        return Outcome()
    return Outcome(list(_cold(shard, now_ms)), atomic=False)


def _cold(shard: ShareShard, now_ms: int) -> Iterator[CoordinatorRecord]:
    for key, state in shard.states.items():
        if now_ms - state.written_ms >= shard.config.cold_snapshot_interval_ms:
            yield snapshot_record(key, state.snapshot(now_ms))
