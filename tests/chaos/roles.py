"""The roles of a cluster's nodes at this moment: the leader of a partition, one of its followers, the active controller."""

from __future__ import annotations

import time

from ottla.protocol.messages.describe_quorum import DescribeQuorumRequest, TopicDataRequest
from ottla.protocol.messages.shared_structs import PartitionIndex
from ottla.testing import Cluster
from tests.broker.wire import Wire

FOUND_SECONDS_MAX = 30
POLL_SECONDS = 0.02


def leader_of(cluster: Cluster, topic: str, partition: int = 0) -> int:
    deadline = time.monotonic() + FOUND_SECONDS_MAX
    while (leader := cluster.leaders(topic).get(partition, -1)) < 0:
        assert time.monotonic() < deadline, f"{topic}-{partition} has no leader"
        time.sleep(POLL_SECONDS)
    return leader


def follower_of(cluster: Cluster, topic: str, partition: int = 0) -> int:
    leader = leader_of(cluster, topic, partition)
    return next(node_id for node_id in cluster.nodes if node_id != leader)


def active_controller(cluster: Cluster) -> int:
    """Return the active controller that one of the nodes names, once the quorum has a leader."""
    deadline = time.monotonic() + FOUND_SECONDS_MAX
    while True:
        for node in cluster.nodes.values():
            if cluster.is_running(node.id) and (leader := quorum_leader("127.0.0.1", node.port)) >= 0:
                return leader
        assert time.monotonic() < deadline, "the quorum has no leader"
        time.sleep(POLL_SECONDS)


def quorum_leader(host: str, port: int) -> int:
    """Return the quorum leader that the node at this address names; -1 if it does not answer, or knows none."""
    asked = DescribeQuorumRequest(
        topics=[TopicDataRequest(topic_name="__cluster_metadata", partitions=[PartitionIndex()])]
    )
    try:
        with Wire(port, host) as wire:
            partition = wire.request(asked).topics[0].partitions[0]
    except (OSError, IndexError):
        return -1
    return -1 if partition.error_code else int(partition.leader_id)
