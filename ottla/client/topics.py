"""Administration of topics and their partitions: offsets and records, and where the replicas and the leaders are (KIP-455, KIP-460)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from ottla.client.cluster import BrokerTooOld, ClusterClient, Leaders, NoConnection
from ottla.client.errors import ClusterError, check, code_of, failure
from ottla.client.failures import Failure, Kind
from ottla.client.partitions import NO_LEADER, TopicPartition, by_topic
from ottla.client.values import INT64_MAX, number_in, time_ms
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, PartitionResult
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
)
from ottla.protocol.messages.metadata import MetadataResponseTopic
from ottla.protocol.messages.shared_structs import TopicNamePartitions, TopicPartitionIndexes
from ottla.protocol.primitives import new_uuid, uuid_to_str
from ottla.protocol.replica_sets import original_replicas

LATEST = -1
EARLIEST = -2
#: The first offset on the leader's disk, and the last one in remote storage (KIP-405).
EARLIEST_LOCAL, LATEST_TIERED = -4, -5
# DeleteRecords takes this offset for the high watermark, so it deletes all committed records.
HIGH_WATERMARK = -1
# CreateTopics takes this count for the broker's num.partitions or default.replication.factor (KIP-464).
BROKER_DEFAULT = -1


async def create_topic(
    cluster: ClusterClient,
    name: str,
    partitions: int,
    replication_factor: int,
    configs: Mapping[str, str],
    *,
    validate_only: bool = False,
) -> CreatableTopicResult:
    """Return the created topic's result; the failure has the broker's reason.

    With `validate_only` the broker only checks whether the topic could be created.
    """
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    cluster.doing = f"creating topic {name}"
    response = await cluster.request(CreateTopicsRequest([topic], cluster.timeout_ms, validate_only))
    result: CreatableTopicResult = response.topics[0]
    check(f"topic {name}", result.error_code, result.error_message)
    return result


async def create_own_topic(
    cluster: ClusterClient, prefix: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
) -> str:
    """Create a topic with a random name for the command's own use, and return the name.

    If a topic of that name exists, it is this one: the response to a first attempt was lost.
    """
    name = f"{prefix}{uuid_to_str(new_uuid(cluster.world.rng))}"
    try:
        await create_topic(cluster, name, partitions, replication_factor, configs)
    except ClusterError as refused:
        if refused.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
    return name


async def delete_topics(cluster: ClusterClient, names: Iterable[str]) -> None:
    wanted = list(names)
    cluster.doing = f"deleting topics {', '.join(wanted)}"
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name) for name in wanted], topic_names=wanted, timeout_ms=cluster.timeout_ms
    )
    for result in (await cluster.request(request)).responses:
        if result.error_code:
            known = await cluster.topic_names()
            name = result.name or ""
            raise failure(f"topic {name}", result.error_code, result.error_message, name=name, known=known)


async def add_partitions(
    cluster: ClusterClient,
    name: str,
    total: int,
    replicas: Sequence[Sequence[int]] | None = None,
    *,
    validate_only: bool = False,
) -> None:
    """Raise the number of partitions; `replicas` are those of each new partition; without them the controller chooses."""
    cluster.doing = f"adding partitions to topic {name}"
    assignments = None
    if replicas is not None:
        assignments = [CreatePartitionsAssignment(broker_ids=list(nodes)) for nodes in replicas]
    topic = CreatePartitionsTopic(name=name, count=total, assignments=assignments)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=cluster.timeout_ms, validate_only=validate_only)
    result = (await cluster.request(request)).results[0]
    check(f"topic {name}", result.error_code, result.error_message)


async def delete_records(cluster: ClusterClient, name: str, before: Mapping[int, int]) -> dict[int, int]:
    """Delete the records before the given offsets (HIGH_WATERMARK: all records). Return the new first offsets."""

    def build(part: list[int]) -> DeleteRecordsRequest:
        rows = [DeleteRecordsPartition(partition_index=index, offset=before[index]) for index in part]
        return DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=name, partitions=rows)], timeout_ms=cluster.timeout_ms
        )

    cluster.doing = f"deleting records of topic {name}"
    results = await ask_leaders(cluster, name, list(before), build)
    return {index: result.low_watermark for index, result in results.items()}


async def list_offsets(
    cluster: ClusterClient, name: str, timestamp: int, partitions: Iterable[int] | None = None, isolation_level: int = 0
) -> dict[int, int]:
    """Return for each partition the first offset at or after `timestamp` (or EARLIEST, LATEST). It is -1 if there is none."""
    rows = await list_places(cluster, name, timestamp, partitions, isolation_level)
    return {index: offset for index, (offset, _) in rows.items()}


async def tier_offsets(
    cluster: ClusterClient, name: str, which: int, partitions: Iterable[int] | None = None
) -> dict[int, int]:
    """Return for each partition the offset EARLIEST_LOCAL or LATEST_TIERED. Brokers from before KIP-405 know none."""
    try:
        found = await list_offsets(cluster, name, which, partitions)
    except Failure:
        return {}
    return {index: offset for index, offset in found.items() if offset >= 0}


async def list_places(
    cluster: ClusterClient, name: str, timestamp: int, partitions: Iterable[int] | None = None, isolation_level: int = 0
) -> dict[int, tuple[int, int]]:
    """Return for each partition the offset, as `list_offsets` does, and its leader epoch."""

    def build(part: list[int]) -> ListOffsetsRequest:
        rows = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in part]
        return ListOffsetsRequest(
            replica_id=-1, isolation_level=isolation_level, topics=[ListOffsetsTopic(name=name, partitions=rows)]
        )

    cluster.doing = f"listing the offsets of topic {name}"
    results = await ask_leaders(cluster, name, partitions, build)
    return {index: (result.offset, result.leader_epoch) for index, result in results.items()}


async def offsets_at(
    cluster: ClusterClient, name: str, option: str, text: str, first: Mapping[int, int], ends: Mapping[int, int]
) -> dict[int, int]:
    """Return for each partition the offset that the text of an option means, within `first` and `ends`: earliest, latest, an
    offset, -N from the end, or a time, which means the first record at or after it.

    Raises:
        ClusterError: the text is none of these.
    """
    if text in ("earliest", "latest"):
        return dict(first if text == "earliest" else ends)
    number = number_in(text, -INT64_MAX, INT64_MAX)
    if number is not None:
        found = {index: ends[index] + number if text.startswith("-") else number for index in ends}
    else:
        since = await list_offsets(cluster, name, time_ms(option, text), ends)
        found = {index: ends[index] if offset < 0 else offset for index, offset in since.items()}
    return {index: max(first[index], min(found[index], end)) for index, end in ends.items()}


async def end_offsets(cluster: ClusterClient, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the end offsets of the topics of these partitions; topics that are gone are left out."""
    present = set(await cluster.topic_names())
    ends: dict[TopicPartition, int] = {}
    for name in sorted({name for name, _ in places} & present):
        ends.update(((name, index), end) for index, end in (await list_offsets(cluster, name, LATEST)).items())
    return ends


async def ask_leaders(
    cluster: ClusterClient, name: str, partitions: Iterable[int] | None, build: Callable[[list[int]], object]
) -> dict[int, Any]:
    """Send `build(partitions)` to each leader and collect the results by partition.

    If a leader has moved, the new one is asked.
    """
    results: dict[int, Any] = {}
    doing = cluster.doing
    leaders = Leaders(cluster, [name])
    await leaders.start()
    known = leaders.partitions(name)
    wanted = known if partitions is None else sorted(partitions)
    for index in wanted:
        if index not in known:
            raise failure(f"partition {name}-{index}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    async def ask() -> tuple[None, int]:
        by_node = leaders.by_node((name, index) for index in wanted if index not in results)
        for node, places in sorted(by_node.items()):
            try:
                response = await cluster.request(build([index for _, index in places]), node)
            except NoConnection:
                leaders.forget(node)
                continue
            for result in response.topics[0].partitions:
                if not result.error_code:
                    results[result.partition_index] = result
                elif not code_of(result.error_code).retriable:
                    raise failure(f"partition {name}-{result.partition_index}", result.error_code)
        missing = [index for index in wanted if index not in results]
        if not missing:
            return None, ErrorCode.NONE
        await leaders.refresh()
        if leaders.of((name, missing[0])).node == NO_LEADER:
            cluster.doing = f"{doing}: partition {name}-{missing[0]} has no leader"
        return None, ErrorCode.LEADER_NOT_AVAILABLE

    _, code = await cluster.retry(ask)
    check(f"topic {name}", code)
    return dict(sorted(results.items()))


async def places_of(cluster: ClusterClient, texts: Sequence[str]) -> list[TopicPartition]:
    """Return the partitions of TOPIC or TOPIC:PARTITION, each once.

    Raises:
        ClusterError: there is no such topic or partition, or the text has another form.
    """
    places: list[TopicPartition] = []
    for text in texts:
        name, colon, index = text.partition(":")
        if colon and not index.isdecimal():
            raise ClusterError(f"{text!r} is not TOPIC or TOPIC:PARTITION", None, Kind.WRONG)
        indexes = await cluster.partitions(name)
        if colon and int(index) not in indexes:
            raise ClusterError(f"there is no partition {name}-{index}", kind=Kind.NO_SUCH_PARTITION)
        places += [(name, int(index))] if colon else [(name, number) for number in indexes]
    return list(dict.fromkeys(places))


PREFERRED, UNCLEAN = 0, 1


async def alter_reassignments(
    cluster: ClusterClient, replicas: Mapping[TopicPartition, Sequence[int] | None]
) -> dict[TopicPartition, tuple[int, str | None]]:
    """Begin to move each partition to its brokers; None cancels its move.

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
    """Return the moves that go on; None means those of all partitions."""
    topics = None if places is None else [TopicPartitionIndexes(*row) for row in by_topic(places).items()]
    request = ListPartitionReassignmentsRequest(cluster.timeout_ms, topics)
    cluster.doing = "listing the moves of partitions"
    response: ListPartitionReassignmentsResponse = await cluster.request(request)
    check("moves of partitions", response.error_code, response.error_message)
    return {(topic.name, part.partition_index): part for topic in response.topics for part in topic.partitions}


async def ongoing_reassignments(cluster: ClusterClient) -> dict[TopicPartition, OngoingPartitionReassignment]:
    """Return all moves that go on.

    If the user may not ask, or the broker is older than KIP-455, return none, as Kafka's tools do.
    """
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
    """Elect as leader the first replica that is in sync (PREFERRED), or any that is alive (UNCLEAN: records may be lost).

    None means all partitions.

    Return the result of each partition. For None these are only the partitions whose leader changed or could not be elected.
    """
    topics = None if places is None else [TopicNamePartitions(*row) for row in by_topic(places).items()]
    request = ElectLeadersRequest(election, topics, cluster.timeout_ms)
    cluster.doing = "electing leaders"
    response: ElectLeadersResponse = await cluster.request(request)
    check("elections", response.error_code)
    return {
        (topic.topic, part.partition_id): part
        for topic in response.replica_election_results
        for part in topic.partition_result
    }
