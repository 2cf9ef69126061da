"""Leaders and replicas that move: throttled, cancelled, unclean, eligible, preferred, over several directories."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from ottla.cli.dump import dump_log
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest
from ottla.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.protocol.messages.shared_structs import TopicNamePartitions
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest
from ottla.storage.files import OsFiles
from ottla.testing import Cluster
from tests.broker.conftest import eventually
from tests.broker.wire import Wire
from tests.cluster.shared import STEADY, make_topics
from tests.cluster.test_three_nodes import Writer, create, read

pytestmark = pytest.mark.timeout(180)


@contextmanager
def admin(cluster: Cluster) -> Iterator[AdminClient]:
    yield AdminClient({"bootstrap.servers": cluster.bootstrap})


def place(cluster: Cluster, topic: str, *replicas: int, **configs: str) -> None:
    """Create a topic of one partition on these brokers, the first of which leads."""
    wanted = NewTopic(
        topic,
        num_partitions=1,
        replica_assignment=[list(replicas)],
        config={name.replace("_", "."): value for name, value in configs.items()},
    )
    with admin(cluster) as client:
        make_topics(client, wanted)
    eventually(lambda: sorted(cluster.isr(topic).get(0, [])) == sorted(replicas), f"{topic} to be there")


def alter(cluster: Cluster, kind: ResourceType, name: str, **configs: str | None) -> None:
    """Alter configurations; None deletes one."""
    entries = [
        ConfigEntry(
            key.replace("_", "."),
            value,
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for key, value in configs.items()
    ]
    with admin(cluster) as client:
        resource = ConfigResource(kind, name, incremental_configs=entries)
        client.incremental_alter_configs([resource])[resource].result(20)


def reassign(cluster: Cluster, topic: str, replicas: list[int] | None) -> int:
    """Move the topic to these replicas, or cancel the move if they are None. Return the partition's error."""
    wanted = ReassignableTopic(name=topic, partitions=[ReassignablePartition(partition_index=0, replicas=replicas)])
    with Wire(next(n.port for n in cluster.nodes.values() if cluster.is_running(n.id))) as wire:
        answer = wire.request(AlterPartitionReassignmentsRequest(topics=[wanted], timeout_ms=10_000))
    assert answer.error_code == 0
    return int(answer.responses[0].partitions[0].error_code)


def elect(cluster: Cluster, topic: str, kind: int) -> int:
    with Wire(next(n.port for n in cluster.nodes.values() if cluster.is_running(n.id))) as wire:
        asked = [TopicNamePartitions(topic=topic, partitions=[0])]
        answer = wire.request(ElectLeadersRequest(election_type=kind, topic_partitions=asked, timeout_ms=10_000))
    return int(answer.replica_election_results[0].partition_result[0].error_code)


def described(cluster: Cluster, topic: str) -> Any:
    """Return the partition with its eligible leaders."""
    with Wire(next(n.port for n in cluster.nodes.values() if cluster.is_running(n.id))) as wire:
        answer = wire.request(DescribeTopicPartitionsRequest(topics=[TopicRequest(name=topic)]))
    return answer.topics[0].partitions[0]


def fill(cluster: Cluster, topic: str, count: int, acks: str = "all") -> None:
    """Write records of 10 KB."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": acks, "linger.ms": 5})
    for number in range(count):
        producer.produce(topic, f"{number:010d}" * 1_000, partition=0)
        producer.poll(0)
    assert producer.flush(60) == 0


def size_on(cluster: Cluster, node_id: int, topic: str) -> int:
    file = Path(cluster.nodes[node_id].dir) / "data" / f"{topic}-0" / f"{0:020d}.log"
    # The file is allocated ahead with zeros: only batches count.
    rows = list(dump_log(OsFiles(), str(file), records=False)) if file.exists() else []
    return sum(int(row["size"]) for row in rows if "size" in row)


MEGABYTE = 1_000_000
CHANGE = "PartitionChangeRecord"


@pytest.mark.chaos
@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_throttled_move_keeps_its_rate_and_is_quick_once_the_throttle_is_gone(cluster: Cluster, side: str) -> None:
    place(cluster, "big", 1)
    fill(cluster, "big", 2_400)  # these are 24 MB
    for node_id in cluster.nodes:
        alter(cluster, ResourceType.BROKER, str(node_id), **{f"{side}_replication_throttled_rate": str(MEGABYTE)})
    replicas = "0:1" if side == "leader" else "0:2"
    alter(cluster, ResourceType.TOPIC, "big", **{f"{side}_replication_throttled_replicas": replicas})
    began = time.monotonic()
    assert reassign(cluster, "big", [2]) == 0
    eventually(lambda: size_on(cluster, 2, "big") > 3 * MEGABYTE, "a part of it", seconds=30)
    # The bytes of the first second and of one more fetch may come early.
    assert size_on(cluster, 2, "big") <= (time.monotonic() - began + 1) * MEGABYTE + 2 * MEGABYTE
    assert cluster.isr("big")[0] == [1], "still under way"
    alter(cluster, ResourceType.TOPIC, "big", **{f"{side}_replication_throttled_replicas": None})
    removed = time.monotonic()
    eventually(lambda: cluster.isr("big")[0] == [2], "the move to be over", seconds=30)
    assert time.monotonic() - removed < 12, "the rest would have taken longer at the throttle's rate"


def test_a_throttle_does_not_hold_back_replicas_that_are_in_sync(cluster: Cluster) -> None:
    place(cluster, "steady", 1, 2, 3, min_insync_replicas="3")
    for node_id in cluster.nodes:
        alter(cluster, ResourceType.BROKER, str(node_id), leader_replication_throttled_rate="1000")
    alter(cluster, ResourceType.TOPIC, "steady", leader_replication_throttled_replicas="*")
    began = time.monotonic()
    fill(cluster, "steady", 300)  # these 3 MB would take most of an hour
    assert time.monotonic() - began < 60 and sorted(cluster.isr("steady")[0]) == [1, 2, 3]


def test_a_move_that_is_cancelled_under_load_leaves_everything_as_it_was(cluster: Cluster) -> None:
    place(cluster, "cancelled", 1, 2, min_insync_replicas="2")
    writer = Writer(cluster, "cancelled")
    writer.write(500)
    writer.flush()
    # The throttle is so low that the new replica never gets in sync.
    alter(cluster, ResourceType.BROKER, "3", follower_replication_throttled_rate="1")
    alter(cluster, ResourceType.TOPIC, "cancelled", follower_replication_throttled_replicas="0:3")
    fill(cluster, "cancelled", 200)
    assert reassign(cluster, "cancelled", [3, 1]) == 0
    writer.write(200)
    with Wire(cluster.nodes[1].port) as wire:
        ongoing = wire.request(ListPartitionReassignmentsRequest(topics=None, timeout_ms=10_000)).topics
    assert [(p.adding_replicas, p.removing_replicas) for t in ongoing for p in t.partitions] == [([3], [2])]
    eventually((Path(cluster.nodes[3].dir) / "data" / "cancelled-0").exists, "the new replica")
    assert reassign(cluster, "cancelled", None) == 0
    writer.write(200)
    writer.flush()
    assert writer.errors == []
    eventually(lambda: not (Path(cluster.nodes[3].dir) / "data" / "cancelled-0").exists(), "its removal")
    eventually(
        lambda: sorted(described(cluster, "cancelled").replica_nodes) == sorted(cluster.isr("cancelled")[0]) == [1, 2],
        "the others to know it",
    )
    assert reassign(cluster, "cancelled", None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_replicas_are_added_and_removed_under_load_without_a_record_lost(cluster: Cluster) -> None:
    place(cluster, "walk", 1, 2, min_insync_replicas="1")
    writer = Writer(cluster, "walk")
    for target in ([1, 2, 3], [3, 2], [3], [1, 3], [1, 2, 3]):
        writer.write(200)
        assert reassign(cluster, "walk", target) == 0
        writer.write(200)
        eventually(lambda t=target: sorted(cluster.isr("walk")[0]) == sorted(t), f"{target} to be in sync", seconds=30)
    writer.flush()
    assert writer.errors == []
    assert read(cluster, "walk", writer.sent) == list(range(writer.sent))


# -- Elections -------------------------------------------------------------------------------------------------------


def recovery_states(cluster: Cluster, node_id: int) -> list[int]:
    """Return the recovery states of leaders in the metadata log, in order: 1 RECOVERING, 0 RECOVERED."""
    file = Path(cluster.nodes[node_id].dir) / "data" / "__cluster_metadata-0" / f"{0:020d}.log"
    changes = [row["value"] for row in dump_log(OsFiles(), str(file), records=True) if row.get("type") == CHANGE]
    return [change["leaderRecoveryState"] for change in changes if change.get("leaderRecoveryState", -1) >= 0]


def lost_last_leader(cluster: Cluster, topic: str) -> None:
    """Bring the topic into the state where broker 2 is back and may not lead, because broker 1, which is gone, has records that
    2 lacks.
    """
    place(cluster, topic, 1, 2, min_insync_replicas="1")
    fill(cluster, topic, 20)
    cluster.kill(2)
    eventually(lambda: cluster.isr(topic)[0] == [1], "the ISR to shrink")
    fill(cluster, topic, 20, acks="1")
    cluster.kill(1)
    cluster.start(2)
    eventually(lambda: cluster.metadata([topic], 2).topics[0].partitions[0].leader_id == -1, "no leader")


def test_an_unclean_election_has_to_be_asked_for_and_ends_with_the_old_leader_back_in_sync(cluster: Cluster) -> None:
    lost_last_leader(cluster, "dirty")
    assert elect(cluster, "dirty", 0) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert elect(cluster, "dirty", 1) == 0
    eventually(lambda: cluster.leaders("dirty")[0] == 2, "the only one alive to lead")
    fill(cluster, "dirty", 5, acks="1")
    cluster.start(1)
    eventually(lambda: sorted(cluster.isr("dirty")[0]) == [1, 2], "the old leader in sync, without what only it had")
    eventually(lambda: recovery_states(cluster, 3)[-2:] == [1, 0], "RECOVERING, then RECOVERED")
    assert elect(cluster, "dirty", 1) == ErrorCode.ELECTION_NOT_NEEDED


def test_unclean_election_takes_place_at_once_when_a_topic_is_allowed_it(cluster: Cluster) -> None:
    lost_last_leader(cluster, "allowed")
    alter(cluster, ResourceType.TOPIC, "allowed", unclean_leader_election_enable="true")
    eventually(lambda: cluster.leaders("allowed")[0] == 2, "the only one alive to lead")


def test_leaders_return_to_their_preferred_replicas_by_themselves() -> None:
    with Cluster(3, leader_imbalance_check_interval_seconds="1", **STEADY) as cluster:
        place(cluster, "home", 2, 1, 3)
        cluster.kill(2)
        eventually(lambda: cluster.leaders("home")[0] in (1, 3), "another leader")
        cluster.start(2)
        eventually(lambda: cluster.leaders("home")[0] == 2, "the preferred one", seconds=30)


def test_eligible_leaders_are_forgotten_when_the_minimum_they_depend_on_changes(cluster: Cluster) -> None:
    place(cluster, "eligible", 1, 2, 3, min_insync_replicas="3")
    fill(cluster, "eligible", 10)
    cluster.stop(3)
    eventually(lambda: described(cluster, "eligible").eligible_leader_replicas == [3], "3 to be eligible")
    alter(cluster, ResourceType.TOPIC, "eligible", min_insync_replicas="2")
    eventually(lambda: not described(cluster, "eligible").eligible_leader_replicas, "it not to be any more")
    # Broker 3 does not have the records that are committed now.
    fill(cluster, "eligible", 10)
    assert sorted(cluster.isr("eligible")[0]) == [1, 2]


def test_a_broker_that_is_gone_for_good_is_unregistered_and_another_takes_its_id(cluster: Cluster) -> None:
    create(cluster, "left")
    writer = Writer(cluster, "left")
    writer.write(100)
    writer.flush()
    cluster.kill(3)
    eventually(lambda: 3 not in cluster.isr("left")[0], "it to leave the ISR")
    with Wire(cluster.nodes[1].port) as wire:
        assert wire.request(UnregisterBrokerRequest(broker_id=3)).error_code == 0
        assert wire.request(UnregisterBrokerRequest(broker_id=3)).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    eventually(lambda: sorted(b.node_id for b in cluster.metadata(node_id=1).brokers) == [1, 2], "it to be forgotten")
    cluster.start(3)
    cluster.wait_isr("left")
    writer.write(100)
    writer.flush()
    assert read(cluster, "left", writer.sent) == list(range(writer.sent))
