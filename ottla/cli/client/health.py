"""The members of the cluster, and the problems that it has."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.cli.client.cluster import ClusterClient, NoConnection
from ottla.cli.client.failures import check
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from ottla.protocol.messages.describe_quorum import DescribeQuorumRequest, TopicDataRequest
from ottla.protocol.messages.shared_structs import PartitionIndex

#: A directory with less is full: a broker needs more for the next index of a segment, and says so at /readyz.
FULL_BYTES = 1 << 20
METADATA_TOPIC = "__cluster_metadata"
NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of the cluster: `place` is where it is, `problem` what it is."""

    place: str
    problem: str


@dataclass(frozen=True, slots=True)
class Quorum:
    leader: int
    epoch: int
    high_watermark: int
    voters: list[int]
    observers: list[int]


async def describe_cluster(cluster: ClusterClient) -> DescribeClusterResponse:
    """Brokers, fenced ones too, and the controller."""
    cluster.doing = "describing the cluster"
    response: DescribeClusterResponse = await cluster.request(DescribeClusterRequest(include_fenced_brokers=True))
    check("cluster", response.error_code, response.error_message)
    return response


async def describe_quorum(cluster: ClusterClient) -> Quorum:
    cluster.doing = "describing the quorum"
    topic = TopicDataRequest(topic_name=METADATA_TOPIC, partitions=[PartitionIndex(partition_index=0)])
    response = await cluster.request(DescribeQuorumRequest(topics=[topic]))
    check("quorum", response.error_code, response.error_message)
    part = response.topics[0].partitions[0]
    check("quorum", part.error_code, part.error_message)
    return Quorum(
        part.leader_id,
        part.leader_epoch,
        part.high_watermark,
        [row.replica_id for row in part.current_voters],
        [row.replica_id for row in part.observers],
    )


async def _broker_problems(cluster: ClusterClient, broker_id: int) -> list[Problem]:
    """Returns what is wrong with a broker's log directories, or that it does not answer."""
    place = f"broker {broker_id}"
    cluster.doing = f"asking {place} for its log directories"
    try:
        response: DescribeLogDirsResponse = await cluster.request(DescribeLogDirsRequest(topics=[]), broker_id)
    except NoConnection as fault:
        return [Problem(place, fault.cause)]
    check(place, response.error_code)
    found = []
    for row in response.results:
        if row.error_code:
            found.append(Problem(place, f"log directory {row.log_dir} is offline"))
        elif 0 <= row.usable_bytes < FULL_BYTES:  # -1: not known
            found.append(
                Problem(place, f"no space left in log directory {row.log_dir} ({row.usable_bytes} bytes free)")
            )
    return found


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
    quorum = await describe_quorum(cluster)
    if quorum.leader == NO_LEADER:
        found.append(Problem("quorum", "no leader"))
    for topic in sorted((await cluster.metadata(None)).topics, key=lambda topic: topic.name or ""):
        for part in sorted(topic.partitions, key=lambda part: part.partition_index):
            place = f"{topic.name}-{part.partition_index}"
            if part.leader_id == NO_LEADER:
                found.append(Problem(place, "no leader"))
            if missing := sorted(set(part.replica_nodes) - set(part.isr_nodes)):
                found.append(Problem(place, f"replicas not in sync: {', '.join(map(str, missing))}"))
            if part.offline_replicas:
                found.append(Problem(place, f"replicas offline: {', '.join(map(str, part.offline_replicas))}"))
    return found
