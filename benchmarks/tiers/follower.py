"""The time until a new replica of a large topic is in sync when its leader has little of the topic on its disk."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.tiers.node import SEGMENTS, TIERED, TieredNodes, nodes, wait_until
from benchmarks.topic_tables.page import Figure
from ottla.protocol.api import ApiKey
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.testing.connection import ClusterConnection

TOPIC = "large"
#: The bytes that stay on the leader's disk.
LOCAL_MEGABYTES = 256


def figures(megabytes: int) -> Iterator[Figure]:
    with nodes(2) as running:
        local = {"local.retention.bytes": str(LOCAL_MEGABYTES << 20), "local.retention.ms": "-2"}
        running.create(TOPIC, 1, SEGMENTS | TIERED | local)
        leader = next(iter(running.partition(TOPIC).replicas))
        running.produce(TOPIC, megabytes * 1_000)
        running.wait_until_copied(TOPIC)
        wait_until(lambda: all(row["local_bytes"] < (LOCAL_MEGABYTES + 150) << 20 for row in running.states(TOPIC)))
        (row,) = running.states(TOPIC)
        other = next(node_id for node_id in running.cluster.nodes if node_id != leader)
        began = time.perf_counter()
        reassign(running, [leader, other])
        wait_until(lambda: other in running.partition(TOPIC).isrs, 300)
        seconds = time.perf_counter() - began
    note = f"{row['remote_bytes'] / 1e9:.1f} GB in the store, {row['local_bytes'] / 1e6:.0f} MB on the leader's disk; to another node of this machine"
    yield Figure("a new follower is in sync after", seconds, "s", at_most=30, note=note)


def reassign(running: TieredNodes, replicas: list[int]) -> None:
    partition = ReassignablePartition(partition_index=0, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=30_000, topics=[ReassignableTopic(name=TOPIC, partitions=[partition])]
    )
    host, _, port = running.bootstrap.partition(",")[0].rpartition(":")
    with ClusterConnection(host, int(port), None) as connection:
        answer = connection.request(request, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0)
    assert not answer.error_code and not answer.responses[0].partitions[0].error_code, answer
