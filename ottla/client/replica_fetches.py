"""Fetches from replicas that need not lead: what each broker has of a partition, for comparisons."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.client.cluster import ATTEMPT_MS_MAX, ClusterClient
from ottla.client.cluster_error import check
from ottla.client.leaders import TopicPartition
from ottla.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)

#: Kafka's "debugging replica": a consumer that is answered by followers too, up to the end of their logs.
DEBUGGING_REPLICA = -2


async def fetch_from_replica(
    cluster: ClusterClient,
    node: int,
    offsets: Mapping[TopicPartition, int],
    topic_ids: Mapping[str, bytes],
    *,
    bytes_max: int,
    wait_ms: int,
) -> dict[TopicPartition, PartitionData]:
    """Return what the broker has from these offsets on, of each of the partitions.

    Raises:
        CommandFailed: the broker cannot be reached, or has no such replica.
    """
    topics: dict[str, FetchTopic] = {}
    for (name, index), offset in sorted(offsets.items()):
        topic = topics.setdefault(name, FetchTopic(name, topic_ids[name], []))
        topic.partitions.append(FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=bytes_max))
    request = FetchRequest(
        replica_state=ReplicaState(DEBUGGING_REPLICA),
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=bytes_max * max(1, len(offsets)),
        topics=list(topics.values()),
    )
    cluster.doing = f"reading the replicas of broker {node}"
    response: FetchResponse = await cluster.request(request, node, timeout_ms=wait_ms + ATTEMPT_MS_MAX)
    check(f"reading from broker {node}", response.error_code)
    names = {topic_id: name for name, topic_id in topic_ids.items()}
    found = {
        (topic.topic or names[topic.topic_id], part.partition_index): part
        for topic in response.responses
        for part in topic.partitions
    }
    for (name, index), part in found.items():
        check(f"partition {name}-{index} at broker {node}", part.error_code)
    return found
