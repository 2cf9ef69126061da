"""The state of a cluster: brokers and their directories, the quorum, features; its problems, and what a stop would make unavailable.

`effects_of_stop` is for `ottla cluster may-stop`, before an update node by node goes on: what would become unavailable.

    partitions    fewer replicas would be in sync than min.insync.replicas: acks=all is answered NOT_ENOUGH_REPLICAS
    the quorum    fewer voters would fetch from its leader than a majority: nothing about the cluster can be changed

What waiting does not help is kept apart: a partition with one replica is unavailable whenever its broker is down. A
reassignment that is going on belongs to neither: ottla/protocol/replica_sets.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from ottla.client.cluster import BrokerTooOld, ClusterClient, NoConnection
from ottla.client.errors import ClusterError, check
from ottla.client.failures import Kind
from ottla.client.partitions import NO_LEADER, TopicPartition
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.add_raft_voter import AddRaftVoterRequest
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from ottla.protocol.messages.describe_quorum import DescribeQuorumRequest, PartitionDataResponse, TopicDataRequest
from ottla.protocol.messages.metadata import MetadataResponseTopic
from ottla.protocol.messages.quorum_structs import Listener
from ottla.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from ottla.protocol.messages.shared_structs import PartitionIndex, TopicNamePartitions
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from ottla.protocol.replica_sets import missing_replicas, original_replicas

#: A directory with less free space counts as full: a broker needs more for the next index of a segment, and reports it at
#: /readyz.
FULL_BYTES = 1 << 20


async def describe_log_dirs(
    cluster: ClusterClient, broker: int, topics: Iterable[TopicNamePartitions] | None = None
) -> list[DescribeLogDirsResult]:
    """Return the log directories of a broker with the replicas of `topics`; None means all topics.

    Raises:
        NoConnection: the broker cannot be reached.
        CommandFailed: no permission.
    """
    cluster.doing = f"describing the log directories of broker {broker}"
    wanted = None if topics is None else list(topics)
    response: DescribeLogDirsResponse = await cluster.request(DescribeLogDirsRequest(topics=wanted), broker)
    check(f"broker {broker}", response.error_code)
    return response.results


async def directory_problems(cluster: ClusterClient, broker: int) -> list[str]:
    """Return what is wrong with the log directories of a broker: those that are full, or offline.

    Raises:
        NoConnection: the broker cannot be reached.
        CommandFailed: no permission.
    """
    found = []
    for row in await describe_log_dirs(cluster, broker, []):
        if row.error_code:
            found.append(f"log directory {row.log_dir} is offline")
        elif 0 <= row.usable_bytes < FULL_BYTES:  # -1: the free space is not known
            found.append(f"no space left in log directory {row.log_dir} ({row.usable_bytes} bytes free)")
    return found


async def alter_replica_log_dirs(
    cluster: ClusterClient, broker: int, paths: Mapping[TopicPartition, str]
) -> dict[TopicPartition, int]:
    """Begin to move replicas of a broker to other log directories of it (KIP-113). Return the error code of each."""
    directories: dict[str, dict[str, AlterReplicaLogDirTopic]] = {}
    for (name, index), path in sorted(paths.items()):
        topics = directories.setdefault(path, {})
        topics.setdefault(name, AlterReplicaLogDirTopic(name, [])).partitions.append(index)
    request = AlterReplicaLogDirsRequest(
        [AlterReplicaLogDir(path, list(row.values())) for path, row in directories.items()]
    )
    cluster.doing = f"moving replicas of broker {broker} to other log directories"
    response: AlterReplicaLogDirsResponse = await cluster.request(request, broker)
    return {
        (topic.topic_name, part.partition_index): part.error_code
        for topic in response.results
        for part in topic.partitions
    }


async def answers(cluster: ClusterClient, broker: int) -> bool:
    """Return whether the broker answers within ATTEMPT_MS_MAX."""
    cluster.doing = f"asking broker {broker} whether it runs"
    try:
        await cluster.metadata([], broker)
    except NoConnection:
        return False
    return True


async def unregister_broker(cluster: ClusterClient, broker: int) -> None:
    """Remove the registration of a broker, which must have stopped for good: a running one would register again."""
    cluster.doing = f"removing broker {broker}"
    response = await cluster.request(UnregisterBrokerRequest(broker))
    check(f"broker {broker}", response.error_code, response.error_message)


METADATA_TOPIC = "__cluster_metadata"


class Quorum(NamedTuple):
    """The state of the metadata partition, and the endpoints of its replicas (NAME://HOST:PORT) by node id."""

    partition: PartitionDataResponse
    endpoints: dict[int, list[str]]


async def describe_quorum(cluster: ClusterClient) -> PartitionDataResponse:
    return (await describe_quorum_nodes(cluster)).partition


async def describe_quorum_nodes(cluster: ClusterClient) -> Quorum:
    cluster.doing = "describing the quorum"
    topic = TopicDataRequest(topic_name=METADATA_TOPIC, partitions=[PartitionIndex(partition_index=0)])
    response = await cluster.request(DescribeQuorumRequest(topics=[topic]))
    check("quorum", response.error_code, response.error_message)
    part: PartitionDataResponse = response.topics[0].partitions[0]
    check("quorum", part.error_code, part.error_message)
    endpoints = {
        node.node_id: [f"{one.name}://{one.host}:{one.port}" for one in node.listeners] for node in response.nodes
    }
    return Quorum(part, endpoints)


async def add_voter(
    cluster: ClusterClient, node: int, directory_id: bytes, listeners: Iterable[tuple[str, str, int]]
) -> None:
    """Add a controller to the voters. A listener is a name, a host and a port."""
    cluster.doing = f"adding controller {node} to the voters"
    rows = [Listener(name=name, host=host, port=port) for name, host, port in listeners]
    request = AddRaftVoterRequest(
        cluster_id=None, timeout_ms=cluster.timeout_ms, voter_id=node, voter_directory_id=directory_id, listeners=rows
    )
    response = await cluster.request(request)
    check(f"controller {node}", response.error_code, response.error_message)


async def remove_voter(cluster: ClusterClient, node: int, directory_id: bytes) -> None:
    """Remove a controller from the voters."""
    cluster.doing = f"removing controller {node} from the voters"
    request = RemoveRaftVoterRequest(cluster_id=None, voter_id=node, voter_directory_id=directory_id)
    response = await cluster.request(request)
    check(f"controller {node}", response.error_code, response.error_message)


UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
SOFTWARE = ("ottla", "1")


class FeatureLevels(NamedTuple):
    """The levels that a broker supports, and the finalized one: 0 if it is not set."""

    lowest: int
    highest: int
    finalized: int


class ClusterFeatures(NamedTuple):
    """The features by name, and the epoch of the finalized levels (-1: there are none)."""

    epoch: int
    levels: dict[str, FeatureLevels]


async def describe_features(cluster: ClusterClient, broker: int | None = None) -> ClusterFeatures:
    """Return the features that one broker supports, or any broker for None, and their finalized levels in the cluster."""
    cluster.doing = "reading the features"
    response: ApiVersionsResponse = await cluster.request(ApiVersionsRequest(*SOFTWARE), broker)
    check("features", response.error_code)
    finalized = {row.name: row.max_version_level for row in response.finalized_features}
    levels = {
        row.name: FeatureLevels(row.min_version, row.max_version, finalized.get(row.name, 0))
        for row in response.supported_features
    }
    return ClusterFeatures(response.finalized_features_epoch, dict(sorted(levels.items())))


async def update_features(
    cluster: ClusterClient, levels: Mapping[str, int], upgrade_type: int, *, dry_run: bool = False
) -> None:
    """Set the levels of features, all of them or none.

    Raises:
        CommandFailed: a level is refused. Brokers before 4.0 report it by feature.
    """
    updates = [FeatureUpdateKey(name, level, upgrade_type=upgrade_type) for name, level in levels.items()]
    request = UpdateFeaturesRequest(cluster.timeout_ms, updates, validate_only=dry_run)
    cluster.doing = "changing the features"
    response: UpdateFeaturesResponse = await cluster.request(request)
    check("features", response.error_code, response.error_message)
    for row in response.results:
        check(f"feature {row.feature}", row.error_code, row.error_message)


async def describe_cluster(cluster: ClusterClient) -> DescribeClusterResponse:
    """Return the brokers and the controller; fenced brokers, too, where the brokers are of 4.0 or later (KIP-1073)."""
    cluster.doing = "describing the cluster"
    try:
        response: DescribeClusterResponse = await cluster.request(DescribeClusterRequest(include_fenced_brokers=True))
    except BrokerTooOld:
        response = await cluster.request(DescribeClusterRequest())
    check("cluster", response.error_code, response.error_message)
    return response


async def check_brokers(cluster: ClusterClient, brokers: Collection[int]) -> None:
    """Check that the cluster has these brokers; they may be fenced.

    Raises:
        ClusterError: one is not registered.
    """
    known = {row.broker_id for row in (await describe_cluster(cluster)).brokers} if brokers else set()
    if unknown := sorted(set(brokers) - known):
        raise ClusterError(f"there is no broker {unknown[0]}", kind=Kind.NO_SUCH_BROKER)


class Problem(NamedTuple):
    """A problem of the cluster: `place` is its part that has it."""

    place: str
    problem: str


async def _broker_problems(cluster: ClusterClient, broker_id: int) -> list[Problem]:
    """Return what is wrong with a broker's log directories, or that it cannot be reached."""
    place = f"broker {broker_id}"
    try:
        return [Problem(place, problem) for problem in await directory_problems(cluster, broker_id)]
    except NoConnection as fault:
        return [Problem(place, fault.cause)]


async def find_problems(cluster: ClusterClient) -> list[Problem]:
    """Return the cluster's problems: fenced brokers, full or failed disks, no leader of the quorum, partitions without a leader or with
    missing replicas."""
    found: list[Problem] = []
    described = await describe_cluster(cluster)
    for row in sorted(described.brokers, key=lambda row: row.broker_id):
        if row.is_fenced:
            found.append(Problem(f"broker {row.broker_id}", "fenced"))
        else:
            found += await _broker_problems(cluster, row.broker_id)
    if (await describe_quorum(cluster)).leader_id == NO_LEADER:
        found.append(Problem("quorum", "no leader"))
    topics = (await cluster.metadata(None)).topics
    from ottla.client.topics import adding_replicas  # Imported late: kafka-storage needs none of its messages.

    adding = await adding_replicas(cluster, topics)
    for topic in sorted(topics, key=lambda topic: topic.name or ""):
        for part in sorted(topic.partitions, key=lambda part: part.partition_index):
            place = f"{topic.name}-{part.partition_index}"
            if part.leader_id == NO_LEADER:
                found.append(Problem(place, "no leader"))
            added = adding.get((topic.name or "", part.partition_index), ())
            if missing := sorted(missing_replicas(part.replica_nodes, added, part.isr_nodes)):
                found.append(Problem(place, f"replicas not in sync: {', '.join(map(str, missing))}"))
            if part.offline_replicas:
                found.append(Problem(place, f"replicas offline: {', '.join(map(str, part.offline_replicas))}"))
    return found


MIN_ISR = "min.insync.replicas"
#: A voter fetches at least every second or two (controller.quorum.fetch.timeout.ms); one that has not fetched for this long does not count.
VOTER_SILENT_MS_MAX = 10_000


class StopEffects(NamedTuple):
    """The effects of a stop.

    Those of `now` pass by themselves, so waiting helps. Those of `always` do not: there is no replica or voter to spare.
    """

    now: list[Problem]
    always: list[Problem]


async def effects_of_stop(cluster: ClusterClient, node_id: int) -> StopEffects:
    """Ask the cluster what a stop of the node would take away.

    Raises:
        ClusterError: no broker and no controller has this id, or a topic is too new for the broker that is asked.
    """
    # Imported late: kafka-storage and most commands need none of their messages.
    from ottla.client.configs import describe_topics_config
    from ottla.client.topics import adding_replicas

    cluster.doing = "reading which replicas are in sync"
    topics = (await cluster.metadata(None)).topics
    for topic in topics:
        check(f"topic {topic.name}", topic.error_code)
    concerned = [each for each in topics if any(node_id in part.replica_nodes for part in each.partitions)]
    min_isr = await describe_topics_config(cluster, [str(topic.name) for topic in concerned], MIN_ISR)
    for topic in concerned:
        # deleted, or too new for this broker: the user asks again before stopping the node
        if topic.name not in min_isr:
            check(f"topic {topic.name}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    adding = await adding_replicas(cluster, concerned)
    of_topics = of_partitions(concerned, {name: int(text) for name, text in min_isr.items()}, node_id, adding)
    quorum = await describe_quorum(cluster)
    # A broker before 4.0 does not list fenced brokers, but one that has replicas is known by them.
    controllers = {row.replica_id for row in (*quorum.current_voters, *quorum.observers)}
    if not concerned and node_id not in controllers:
        brokers = {row.broker_id for row in (await describe_cluster(cluster)).brokers}
        if node_id not in brokers:
            raise ClusterError(f"there is no node {node_id}", kind=Kind.NO_SUCH_NODE)
    of_voters = of_quorum(quorum, node_id)
    return StopEffects(of_voters.now + of_topics.now, of_voters.always + of_topics.always)


def of_partitions(
    topics: Iterable[MetadataResponseTopic],
    min_isr: Mapping[str, int],
    node_id: int,
    adding: Mapping[TopicPartition, Collection[int]],
) -> StopEffects:
    """Judge the partitions with a replica on the node. A replica that is being added there, and is not in sync, does not count."""
    stop = StopEffects([], [])
    for topic in sorted(topics, key=lambda each: each.name or ""):
        for part in sorted(topic.partitions, key=lambda each: each.partition_index):
            added = adding.get((topic.name or "", part.partition_index), ())
            original = original_replicas(part.replica_nodes, added)
            if node_id not in original and node_id not in part.isr_nodes:
                continue
            least = min_isr[str(topic.name)]
            left = len(set(part.isr_nodes) - {node_id})
            if left >= max(least, 1):
                continue
            has_more = len(original) > max(least, 1)
            text = f"{left} replicas would be in sync, and {MIN_ISR} is {least}"
            (stop.now if has_more else stop.always).append(Problem(f"{topic.name}-{part.partition_index}", text))
    return stop


def of_quorum(quorum: PartitionDataResponse, node_id: int) -> StopEffects:
    voters = {row.replica_id: row.last_fetch_timestamp for row in quorum.current_voters}
    if node_id not in voters:
        return StopEffects([], [])
    newest_ms = max(voters.values())
    left = sum(newest_ms - at_ms <= VOTER_SILENT_MS_MAX for voter, at_ms in voters.items() if voter != node_id)
    majority = len(voters) // 2 + 1
    if left >= majority:
        return StopEffects([], [])
    found = [Problem("quorum", f"{left} of {len(voters)} voters would be left, and {majority} are a majority")]
    return StopEffects(found, []) if len(voters) > majority else StopEffects([], found)
