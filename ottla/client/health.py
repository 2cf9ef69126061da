"""The members of the cluster, and the problems that it has."""

from __future__ import annotations

from typing import NamedTuple

from ottla.client.brokers import directory_problems
from ottla.client.cluster import BrokerTooOld, ClusterClient, NoConnection
from ottla.client.cluster_error import check
from ottla.client.quorum import describe_quorum
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

NO_LEADER = -1


class Problem(NamedTuple):
    """A problem of the cluster: `place` is where it is, `problem` what it is."""

    place: str
    problem: str


async def describe_cluster(cluster: ClusterClient) -> DescribeClusterResponse:
    """Brokers, and the controller; fenced brokers, too, where the brokers are of 4.0 or later (KIP-1073)."""
    cluster.doing = "describing the cluster"
    try:
        response: DescribeClusterResponse = await cluster.request(DescribeClusterRequest(include_fenced_brokers=True))
    except BrokerTooOld:
        response = await cluster.request(DescribeClusterRequest())
    check("cluster", response.error_code, response.error_message)
    return response


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
