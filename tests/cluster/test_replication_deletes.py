"""Records and topics that are deleted stay deleted, also when the leader changes and when a replica was away."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.testing import Cluster
from tests.broker.conftest import eventually
from tests.broker.wire import Wire
from tests.cluster.test_three_nodes import Writer, create, read

pytestmark = pytest.mark.timeout(120)


def delete_before(cluster: Cluster, topic: str, offset: int, timeout_ms: int = 20_000) -> tuple[int, int]:
    """Delete the records; return (error, low watermark) of the leader's response."""
    asked = DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])
    with Wire(cluster.nodes[cluster.leaders(topic)[0]].port) as wire:
        wire.sock.settimeout(30)
        result = wire.request(DeleteRecordsRequest(topics=[asked], timeout_ms=timeout_ms)).topics[0].partitions[0]
    return result.error_code, result.low_watermark


def earliest(cluster: Cluster, topic: str) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    partition = TopicPartition(topic, 0)
    return int(admin.list_offsets({partition: OffsetSpec.earliest()})[partition].result(20).offset)


def delete_topic(cluster: Cluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.delete_topics([topic])[topic].result(20)


def folder(cluster: Cluster, node_id: int, topic: str) -> Path:
    return Path(cluster.nodes[node_id].dir) / "data" / f"{topic}-0"


def test_records_whose_deletion_was_answered_do_not_come_back_with_another_leader(cluster: Cluster) -> None:
    create(cluster, "cut")
    writer = Writer(cluster, "cut")
    writer.write(100)
    writer.flush()
    assert delete_before(cluster, "cut", 60) == (0, 60)
    leader = cluster.leaders("cut")[0]
    cluster.kill(leader)
    for node_id in cluster.nodes.keys() - {leader}:  # the client may ask any of these nodes for the leader
        eventually(
            lambda n=node_id: cluster.metadata(["cut"], n).topics[0].partitions[0].leader_id not in (-1, leader),
            f"another leader on {node_id}",
        )
    assert earliest(cluster, "cut") == 60


@pytest.mark.chaos
def test_a_deletion_that_a_live_follower_has_not_fetched_times_out_until_that_is_fenced(cluster: Cluster) -> None:
    create(cluster, "cut")
    writer = Writer(cluster, "cut")
    writer.write(100)
    writer.flush()
    follower = next(n for n in cluster.nodes if n != cluster.leaders("cut")[0])
    cluster.pause(follower)
    assert delete_before(cluster, "cut", 30, timeout_ms=700) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    eventually(lambda: follower not in cluster.isr("cut")[0], "the sleeper to be fenced", seconds=60)
    assert delete_before(cluster, "cut", 40) == (0, 40)
    cluster.resume(follower)
    cluster.wait_isr("cut")
    assert delete_before(cluster, "cut", 40) == (0, 40)


def test_a_topic_that_is_deleted_while_a_node_is_down_is_gone_from_its_disk_too(cluster: Cluster) -> None:
    create(cluster, "gone")
    writer = Writer(cluster, "gone")
    writer.write(10)
    writer.flush()
    cluster.kill(3)
    delete_topic(cluster, "gone")
    assert folder(cluster, 3, "gone").exists()
    cluster.start(3)
    assert not folder(cluster, 3, "gone").exists()
    assert cluster.metadata(["gone"], 3).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_that_is_made_again_while_a_node_is_down_has_nothing_of_the_old_one(cluster: Cluster) -> None:
    create(cluster, "again")
    writer = Writer(cluster, "again")
    writer.write(500)
    writer.flush()
    cluster.kill(3)
    delete_topic(cluster, "again")
    eventually(lambda: not folder(cluster, 1, "again").exists(), "the first one to go")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    wanted = NewTopic("again", replica_assignment=[[1, 2, 3]], num_partitions=1, config={"min.insync.replicas": "2"})
    admin.create_topics([wanted])["again"].result(20)
    second = Writer(cluster, "again")
    second.write(20)
    second.flush()
    cluster.start(3)
    cluster.wait_isr("again")
    cluster.kill(1)
    cluster.wait_isr("again", 2)
    second.write(20)
    second.flush()
    assert read(cluster, "again", 40) == list(range(40))


def test_a_replica_that_was_moved_away_while_its_node_was_down_leaves_its_disk(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("moved", 1, replica_assignment=[[1, 3]])])["moved"].result(20)
    writer = Writer(cluster, "moved")
    writer.write(10)
    writer.flush()
    assert folder(cluster, 3, "moved").exists()
    cluster.kill(3)
    eventually(lambda: cluster.isr("moved")[0] == [1], "the ISR to shrink")
    with Wire(cluster.nodes[1].port) as wire:
        move = ReassignableTopic(name="moved", partitions=[ReassignablePartition(partition_index=0, replicas=[1, 2])])
        wire.request(AlterPartitionReassignmentsRequest(topics=[move], timeout_ms=10_000))
    eventually(lambda: cluster.isr("moved")[0] == [1, 2], "the move to be over")
    assert folder(cluster, 3, "moved").exists()
    cluster.start(3)
    assert not folder(cluster, 3, "moved").exists(), "a stray that no task would ever delete (KAFKA-15359)"
