"""Committed offsets of one shard, by group, topic and partition: hard state, only changed by replay.

Offsets committed in a transaction are kept apart by producer id until its marker is replayed (KIP-447 readers wait for
them). The commit that was written later, by its record's offset, takes precedence.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Set
from typing import NamedTuple, TypeAlias

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
TopicPartition: TypeAlias = tuple[str, int]


class CommittedOffsets:
    """The committed offsets of groups. Empty dictionaries are never kept, so that a group without offsets has no entry."""

    def __init__(self) -> None:
        self.groups: dict[str, Topics] = {}
        self._pending: dict[int, dict[str, Topics]] = {}
        # The producers that have an offset of a partition pending, by group: a group may have thousands of open transactions.
        self._open: dict[str, dict[TopicPartition, set[int]]] = {}

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        try:
            return self.groups[group_id][topic].get(partition)
        except KeyError:
            return None

    def of_group(self, group_id: str) -> Topics:
        return self.groups.get(group_id) or {}

    def group_ids(self) -> Iterable[str]:
        """Return the groups with offsets, committed or pending."""
        return {**self.groups, **self._open}

    def count(self, group_id: str) -> int:
        """Return the number of offsets of the group, committed and pending."""
        return sum(map(len, self.of_group(group_id).values())) + len(self._open.get(group_id, ()))

    def pending_partitions(self, group_id: str) -> Collection[TopicPartition]:
        """Return the partitions of which an open transaction has a pending offset."""
        return self._open.get(group_id, {}).keys()

    def of_topics(self, group_id: str, names: Set[str]) -> Iterator[tuple[str, int, CommittedOffset]]:
        """Yield the group's offsets of these topics, committed and pending."""
        topics = self.of_group(group_id)
        for topic in names & topics.keys():
            for partition, offset in topics[topic].items():
                yield topic, partition, offset
        for (topic, partition), producers in self._open.get(group_id, {}).items():
            if topic in names:
                for producer_id in producers:
                    yield topic, partition, self._pending[producer_id][group_id][topic][partition]

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
            store = self._pending.setdefault(producer_id, {})
            self._open.setdefault(group_id, {}).setdefault((topic, partition), set()).add(producer_id)
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
        for producer_id in self._open.get(group_id, {}).get((topic, partition), ()):
            pending = self._pending[producer_id]
            _remove(pending, group_id, topic, partition)
            if not pending:
                del self._pending[producer_id]
        self._close(group_id, topic, partition, None)

    def replay_marker(self, producer_id: int, committed: bool) -> None:
        """The transaction ended: its offsets count from now on, or are dropped."""
        for group_id, topics in self._pending.pop(producer_id, {}).items():
            for topic, partitions in topics.items():
                for partition, offset in partitions.items():
                    self._close(group_id, topic, partition, producer_id)
                    known = self.get(group_id, topic, partition)
                    if committed and (known is None or known.record_offset < offset.record_offset):
                        self.groups.setdefault(group_id, {}).setdefault(topic, {})[partition] = offset

    def _close(self, group_id: str, topic: str, partition: int, producer_id: int | None) -> None:
        """Forget that the partition has a pending offset of the producer, or of any producer if it is None."""
        partitions = self._open.get(group_id, {})
        producers = partitions.get((topic, partition), set())
        if producer_id is None:
            producers.clear()
        else:
            producers.discard(producer_id)
        if not producers and partitions.pop((topic, partition), None) is not None and not partitions:
            del self._open[group_id]


def _remove(store: dict[str, Topics], group_id: str, topic: str, partition: int) -> None:
    topics = store.get(group_id)
    if topics is None or topic not in topics:
        return
    topics[topic].pop(partition, None)
    if not topics[topic]:
        del topics[topic]
    if not topics:
        del store[group_id]
