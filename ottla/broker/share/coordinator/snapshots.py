"""Snapshots of share partitions that do not change, and tombstones of those whose topic is gone: so that the log can be pruned.

The log can lose only a prefix, and the snapshot of a share partition that does not change would keep all that other share
partitions write after it.
"""

from __future__ import annotations

from ottla.broker.coordinator.outcome import CoordinatorRecord, Outcome, Unasked
from ottla.broker.coordinator.sweep import sweep_soon
from ottla.broker.share.coordinator.records import snapshot_record
from ottla.broker.share.coordinator.shard import RECORD_LOOKS, ShareShard
from ottla.broker.share.state import SharePartitionKey


def delete_of_topics(shard: ShareShard, now_ms: int, topic_ids: frozenset[bytes]) -> Unasked:
    return shard.forget(("topics-deleted", topic_ids), lambda key: key.topic_id in topic_ids)


def snapshot_cold(shard: ShareShard, now_ms: int) -> Unasked:
    """Nothing while the log holds no more than one record of each share partition."""
    if shard.newest_offset + 1 - shard.redundant_before() <= len(shard.states):
        return Outcome()

    def look(key: SharePartitionKey, records: list[CoordinatorRecord]) -> int:
        state = shard.states.get(key)
        if state is None or now_ms - state.written_ms < shard.config.cold_snapshot_interval_ms:
            return 1
        records.append(snapshot_record(key, state.snapshot(now_ms)))
        return RECORD_LOOKS

    return sweep_soon(shard.timers, "cold", lambda: [*shard.states], look)
