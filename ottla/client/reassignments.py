"""Moving the replicas and the leadership of partitions (KIP-455, KIP-460)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from ottla.client.cluster import BrokerTooOld, ClusterClient
from ottla.client.errors import ClusterError, check
from ottla.client.partitions import TopicPartition
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, PartitionResult
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
)
from ottla.protocol.messages.metadata import MetadataResponseTopic
from ottla.protocol.messages.shared_structs import TopicNamePartitions, TopicPartitionIndexes
from ottla.protocol.replica_sets import original_replicas

PREFERRED, UNCLEAN = 0, 1


async def alter_reassignments(
    cluster: ClusterClient, replicas: Mapping[TopicPartition, Sequence[int] | None]
) -> dict[TopicPartition, tuple[int, str | None]]:
    """Begin to move each partition to the brokers, or cancel its move where they are None.

    Return the error code and message of each; the move itself goes on when this returns.

    Raises:
        CommandFailed: the request as a whole is rejected.
    """
    topics: dict[str, ReassignableTopic] = {}
    for (name, index), brokers in sorted(replicas.items(), key=lambda item: item[0]):
        row = ReassignablePartition(index, None if brokers is None else list(brokers))
        topics.setdefault(name, ReassignableTopic(name, [])).partitions.append(row)
    request = AlterPartitionReassignmentsRequest(timeout_ms=cluster.timeout_ms, topics=list(topics.values()))
    cluster.doing = "moving partitions"
    response: AlterPartitionReassignmentsResponse = await cluster.request(request)
    check("moves of partitions", response.error_code, response.error_message)
    return {
        (topic.name, part.partition_index): (part.error_code, part.error_message)
        for topic in response.responses
        for part in topic.partitions
    }


async def list_reassignments(
    cluster: ClusterClient, places: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, OngoingPartitionReassignment]:
    """Return the moves that go on, of all partitions for None."""
    topics: dict[str, TopicPartitionIndexes] = {}
    for name, index in places or ():
        topics.setdefault(name, TopicPartitionIndexes(name, [])).partition_indexes.append(index)
    request = ListPartitionReassignmentsRequest(cluster.timeout_ms, None if places is None else list(topics.values()))
    cluster.doing = "listing the moves of partitions"
    response: ListPartitionReassignmentsResponse = await cluster.request(request)
    check("moves of partitions", response.error_code, response.error_message)
    return {(topic.name, part.partition_index): part for topic in response.topics for part in topic.partitions}


async def ongoing_reassignments(cluster: ClusterClient) -> dict[TopicPartition, OngoingPartitionReassignment]:
    """Return all moves that go on; none where this user may not ask, or the broker is older than KIP-455, as Kafka's tools do."""
    try:
        return await list_reassignments(cluster)
    except BrokerTooOld:
        return {}
    except ClusterError as fault:
        if fault.code != ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise
        return {}


async def adding_replicas(
    cluster: ClusterClient, topics: Iterable[MetadataResponseTopic]
) -> dict[TopicPartition, Collection[int]]:
    """Return the replicas that moves are adding to partitions. The cluster is asked only if a replica of `topics` is out of sync."""
    if all(len(part.isr_nodes) >= len(part.replica_nodes) for topic in topics for part in topic.partitions):
        return {}
    return {place: row.adding_replicas for place, row in (await ongoing_reassignments(cluster)).items()}


def replication_factor(topic: MetadataResponseTopic, adding: Mapping[TopicPartition, Collection[int]]) -> int:
    """Return the largest replication factor of a topic's partitions; 0 if it has none."""
    return max(
        (
            len(original_replicas(part.replica_nodes, adding.get((topic.name or "", part.partition_index), ())))
            for part in topic.partitions
        ),
        default=0,
    )


async def elect_leaders(
    cluster: ClusterClient, places: Iterable[TopicPartition] | None, election: int
) -> dict[TopicPartition, PartitionResult]:
    """Elect the first replica that is in sync (PREFERRED), or any that is alive (UNCLEAN: records may be lost). None: all partitions.

    Return the result of each partition; of all partitions only those whose leader changed, or could not.
    """
    topics: dict[str, TopicNamePartitions] = {}
    for name, index in places or ():
        topics.setdefault(name, TopicNamePartitions(name, [])).partitions.append(index)
    request = ElectLeadersRequest(election, None if places is None else list(topics.values()), cluster.timeout_ms)
    cluster.doing = "electing leaders"
    response: ElectLeadersResponse = await cluster.request(request)
    check("elections", response.error_code)
    return {
        (topic.topic, part.partition_id): part
        for topic in response.replica_election_results
        for part in topic.partition_result
    }
