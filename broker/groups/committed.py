"""Committed offsets of one shard, by group, topic and partition: hard state, changed by replay alone.

Offsets committed in a transaction are kept apart by producer id until its marker is replayed (KIP-447 readers wait for
them). The commit that was written later, by its record's offset, takes precedence.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ottla.protocol.internal_topics.group_records import OffsetCommitValue

NO_TIMESTAMP = -1


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    topic_id: bytes
    # The offset of its record in the log.
    record_offset: int


Partitions = dict[int, CommittedOffset]
Topics = dict[str, Partitions]


class CommittedOffsets:
    """Empty dictionaries are never kept, so that a group without offsets is one without an entry."""

    def __init__(self) -> None:
        self.groups: dict[str, Topics] = {}
        self.pending: dict[int, dict[str, Topics]] = {}
        # Producers with an open transaction, by group.
        self.open_transactions: dict[str, set[int]] = {}

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        try:
            return self.groups[group_id][topic].get(partition)
        except KeyError:
            return None

    def of_group(self, group_id: str) -> Topics:
        return self.groups.get(group_id) or {}

    def count(self, group_id: str) -> int:
        """Return the number of offsets of the group."""
        return sum(map(len, self.of_group(group_id).values()))

    def has_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Returns True if an open transaction has a pending offset of the partition."""
        return any(
            partition in self.pending[producer_id].get(group_id, {}).get(topic, ())
            for producer_id in self.open_transactions.get(group_id, ())
        )

    def pending_partitions(self, group_id: str) -> Iterator[tuple[str, int]]:
        for producer_id in self.open_transactions.get(group_id, ()):
            for topic, partitions in self.pending[producer_id].get(group_id, {}).items():
                for partition in partitions:
                    yield topic, partition

    # ---- replay

    def replay_commit(
        self, record_offset: int, producer_id: int, group_id: str, topic: str, partition: int, value: OffsetCommitValue
    ) -> None:
        committed = CommittedOffset(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            value.topic_id,
            record_offset,
        )
        if producer_id == -1:
            store = self.groups
        else:
            store = self.pending.setdefault(producer_id, {})
            self.open_transactions.setdefault(group_id, set()).add(producer_id)
        topics = store.get(group_id)
        if topics is None:
            topics = store[group_id] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = {}
        partitions[partition] = committed

    def replay_tombstone(self, group_id: str, topic: str, partition: int) -> None:
        """Forget the offset, also one of an open transaction."""
        _remove(self.groups, group_id, topic, partition)
        for producer_id in self.open_transactions.get(group_id, ()):
            _remove(self.pending[producer_id], group_id, topic, partition)

    def replay_marker(self, producer_id: int, committed: bool) -> None:
        """The transaction ended: its offsets count from now on, or never did."""
        groups = self.pending.pop(producer_id, None)
        for group_id in [g for g, producers in self.open_transactions.items() if producer_id in producers]:
            producers = self.open_transactions[group_id]
            producers.discard(producer_id)
            if not producers:
                del self.open_transactions[group_id]
        if groups is None or not committed:
            return
        for group_id, topics in groups.items():
            for topic, partitions in topics.items():
                for partition, offset in partitions.items():
                    known = self.get(group_id, topic, partition)
                    if known is None or known.record_offset < offset.record_offset:
                        self.groups.setdefault(group_id, {}).setdefault(topic, {})[partition] = offset


def _remove(store: dict[str, Topics], group_id: str, topic: str, partition: int) -> None:
    topics = store.get(group_id)
    if topics is None or topic not in topics:
        return
    topics[topic].pop(partition, None)
    if not topics[topic]:
        del topics[topic]
    if not topics:
        del store[group_id]
