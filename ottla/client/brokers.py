"""Log directories of brokers, and their removal from the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.client.cluster import ClusterClient, NoConnection
from ottla.client.cluster_error import check
from ottla.client.leaders import TopicPartition
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from ottla.protocol.messages.shared_structs import TopicNamePartitions
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest

#: A directory with less is full: a broker needs more for the next index of a segment, and says so at /readyz.
FULL_BYTES = 1 << 20


async def describe_log_dirs(
    cluster: ClusterClient, broker: int, topics: Iterable[TopicNamePartitions] | None = None
) -> list[DescribeLogDirsResult]:
    """Return the log directories of a broker with the replicas of `topics`, of all topics for None.

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
        elif 0 <= row.usable_bytes < FULL_BYTES:  # -1: not known
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
