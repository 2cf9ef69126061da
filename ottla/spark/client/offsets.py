"""Requests about offsets: first, last and by timestamp (ListOffsets), and those of groups (OffsetFetch, OffsetCommit)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.client.partitions import TopicPartition
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest
from ottla.spark.client.cluster import GROUP, BlockingCluster
from ottla.spark.errors import check

EARLIEST, LATEST = -2, -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
_NAMES_VERSION_MAX = 7  # later versions have topic ids in place of names, or many groups


def list_offsets(
    cluster: BlockingCluster, times: Mapping[TopicPartition, int], isolation: int
) -> dict[TopicPartition, int]:
    """Return for each partition the first offset with at least this timestamp (ms), or the one that LATEST or EARLIEST stands for.

    It is -1 if no record is that new. LATEST is the last stable offset for READ_COMMITTED.
    """
    return cluster.retry(lambda: _list_offsets(cluster, times, isolation))


def _list_offsets(
    cluster: BlockingCluster, times: Mapping[TopicPartition, int], isolation: int
) -> dict[TopicPartition, int]:
    found = {}
    for node, places in cluster.by_leader(times).items():
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for name, index in places:
            topics.setdefault(name, []).append(ListOffsetsPartition(index, timestamp=times[name, index]))
        rows = [ListOffsetsTopic(name, rows) for name, rows in topics.items()]
        response = cluster.call(cluster.node(node), ListOffsetsRequest(-1, isolation, rows), _NAMES_VERSION_MAX)
        for topic in response.topics:
            for part in topic.partitions:
                check(f"offsets of {topic.name}-{part.partition_index}", part.error_code)
                found[topic.name, part.partition_index] = part.offset
    return found


def committed_offsets(cluster: BlockingCluster, group: str) -> dict[TopicPartition, tuple[int, str]]:
    """Return the committed offsets of a group: offset and metadata of each partition that has them."""

    def attempt() -> dict[TopicPartition, tuple[int, str]]:
        response = cluster.ask_coordinator(group, GROUP, OffsetFetchRequest(group, None), _NAMES_VERSION_MAX)
        check(f"group {group}", response.error_code)
        found = {}
        for topic in response.topics:
            for part in topic.partitions:
                check(f"group {group}, {topic.name}-{part.partition_index}", part.error_code)
                if part.committed_offset >= 0:
                    found[topic.name, part.partition_index] = (part.committed_offset, part.metadata or "")
        return found

    return cluster.retry(attempt)


def commit_offsets(
    cluster: BlockingCluster, group: str, offsets: Mapping[TopicPartition, int], metadata: Mapping[str, str]
) -> None:
    """Commit offsets to a group without members, so that tools show the lag of a stream. `metadata` has a text for each topic."""

    def attempt() -> None:
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (name, index), offset in offsets.items():
            topics.setdefault(name, []).append(
                OffsetCommitRequestPartition(index, offset, committed_metadata=metadata.get(name, ""))
            )
        sent = [OffsetCommitRequestTopic(name, partitions=parts) for name, parts in topics.items()]
        response = cluster.ask_coordinator(group, GROUP, OffsetCommitRequest(group, topics=sent), _NAMES_VERSION_MAX)
        for topic in response.topics:
            for part in topic.partitions:
                check(f"group {group}, {topic.name}-{part.partition_index}", part.error_code)

    cluster.retry(attempt)


def all_partitions(topics: Iterable[tuple[str, int]]) -> list[TopicPartition]:
    """Return the partitions of topics, from their numbers of partitions."""
    return [(name, index) for name, count in topics for index in range(count)]
