"""Moving the replicas and the leadership of partitions (KIP-455, KIP-460)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ottla.client.cluster import ClusterClient
from ottla.client.cluster_error import check
from ottla.client.leaders import TopicPartition
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
from ottla.protocol.messages.shared_structs import TopicNamePartitions, TopicPartitionIndexes

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
