"""A replicated cluster over the wire: placement, followers that die and come back, leaders that die, sleep and move."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.shared_structs import TopicNamePartitions
from ottla.testing import Cluster
from tests.broker.conftest import eventually
from tests.broker.wire import Wire
from tests.chaos.producer_epochs import producer_epoch
from tests.cluster.shared import PATIENT, STEADY, WITHOUT_THE_HINT_SECONDS, brokers, make_topics

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with Cluster(3, auto_create_topics_enable="false", auto_leader_rebalance_enable="false", **STEADY) as cluster:
        yield cluster


@pytest.fixture
def patient() -> Iterator[Cluster]:
    with Cluster(3, auto_create_topics_enable="false", **PATIENT) as cluster:
        yield cluster


def create(cluster: Cluster, topic: str, partitions: int = 1, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    wanted = {"min.insync.replicas": "2"} | {name.replace("_", "."): value for name, value in configs.items()}
    make_topics(admin, NewTopic(topic, partitions, 3, config=wanted))
    # Every broker has to know the topic: clients may ask any of them.
    for node_id in cluster.nodes:
        eventually(lambda n=node_id: not cluster.metadata([topic], n).topics[0].error_code, f"{topic} on {node_id}")


def test_no_step_of_a_transaction_waits_for_a_fetch_to_time_out() -> None:
    """A fetch that raises the high watermark of one partition may cause the next step to be written to another partition of the
    same session.
    """
    with Cluster(3, replica_fetch_wait_max_ms="10000", **STEADY) as cluster:
        create(cluster, "t", 3)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "t"})
        producer.init_transactions(20)
        began = time.monotonic()
        for _ in range(20):
            producer.begin_transaction()
            for partition in range(3):
                producer.produce("t", b"x", partition=partition)
            producer.commit_transaction(20)
        assert time.monotonic() - began < 60, "one wait in each transaction would be 200 s"


def test_batches_in_flight_keep_their_order_while_the_first_is_verified_and_its_files_are_made(
    cluster: Cluster,
) -> None:
    """The first append to a partition needs a worker, also after the coordinator's response. Before the fix the second one
    overtook it.
    """
    for number in range(6):
        topic = f"new-{number}"
        create(cluster, topic)
        assert acknowledged_in_a_transaction(cluster, topic, batches=6) == list(range(6))


def acknowledged_in_a_transaction(cluster: Cluster, topic: str, batches: int) -> list[int | str]:
    """Return the offsets of batches of one record, all of which are in flight at the same time, or their errors."""
    acknowledged: list[int | str] = []
    settings = {"transactional.id": topic, "batch.num.messages": 1, "linger.ms": 0, "log_level": 0}
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **settings})
    producer.init_transactions(20)
    producer.begin_transaction()
    for _ in range(batches):
        producer.produce(topic, b"x", on_delivery=lambda e, m: acknowledged.append(str(e) if e else m.offset()))
    producer.flush(20)
    producer.commit_transaction(20)
    return acknowledged


class Writer:
    """An idempotent producer that remembers when each record was acknowledged."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.topic = topic
        self.sent = 0
        self.acknowledged: dict[int, int] = {}  # the offset by the value
        self.times: list[float] = []
        self.errors: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 0,
                # the client decides how long it waits for a sleeping broker, which keeps its connections
                "socket.timeout.ms": 6000,
            }
        )

    def write(self, count: int = 1, per_second: float = 0) -> None:
        for _ in range(count):
            value = self.sent
            self.sent += 1
            self._producer.produce(self.topic, str(value), partition=0, on_delivery=self._delivered)
            self._producer.poll(1 / per_second if per_second else 0)

    def flush(self, seconds: float = 60) -> None:
        assert self._producer.flush(seconds) == 0, "records were neither acknowledged nor refused"

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.errors.append(str(error))
        else:
            self.acknowledged[int(message.value())] = message.offset()
            self.times.append(time.monotonic())

    @property
    def longest_gap(self) -> float:
        return max(later - earlier for earlier, later in pairwise(self.times))


def read(cluster: Cluster, topic: str, count: int) -> list[int]:
    """Return the values in their order. A value that librdkafka wrote again with another producer epoch counts once
    (tests/chaos/producer_epochs.py).
    """
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "judge", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: dict[int, int] = {}  # the value by the offset
    places: dict[int, list[int]] = {}
    deadline = time.monotonic() + 60
    while len(places) < count and time.monotonic() < deadline:
        for message in consumer.consume(count, 0.5):
            if message.error() is None:
                values[message.offset()] = int(message.value())
                places.setdefault(int(message.value()), []).append(message.offset())
    consumer.close()
    address = next(cluster.address(n) for n in cluster.nodes if cluster.is_running(n) and not cluster.is_paused(n))
    for offsets in (each for each in places.values() if len(each) > 1):
        if len({producer_epoch(address, topic, 0, offset) for offset in offsets}) == len(offsets):
            for again in offsets[1:]:
                del values[again]
    return list(values.values())


def test_three_brokers_are_registered_and_replicas_spread_over_them(cluster: Cluster) -> None:
    create(cluster, "spread", partitions=6)
    for node_id in cluster.nodes:
        answer = cluster.metadata(["spread"], node_id)
        assert sorted(broker.node_id for broker in answer.brokers) == [1, 2, 3]
        partitions = answer.topics[0].partitions
        assert all(sorted(p.replica_nodes) == sorted(p.isr_nodes) == [1, 2, 3] for p in partitions)
        assert sorted(p.leader_id for p in partitions) == [1, 1, 2, 2, 3, 3]


def test_what_acks_all_acknowledged_is_on_all_three_disks_byte_for_byte(cluster: Cluster) -> None:
    create(cluster, "copied")
    writer = Writer(cluster, "copied")
    writer.write(1000)
    writer.flush()
    for node_id in cluster.nodes:
        cluster.stop(node_id)
    files = [Path(node.dir) / "data" / "copied-0" / f"{0:020d}.log" for node in cluster.nodes.values()]
    contents = {file.read_bytes() for file in files}
    assert len(contents) == 1 and len(next(iter(contents))) > 1000


def test_a_killed_leader_is_replaced_and_nothing_acknowledged_is_lost(patient: Cluster) -> None:
    cluster = patient
    create(cluster, "killed")
    writer = Writer(cluster, "killed")
    writer.write(300, per_second=500)
    writer.flush()
    leader = cluster.leaders("killed")[0]
    cluster.kill(leader)
    writer.write(1500, per_second=500)
    writer.flush()
    assert cluster.leaders("killed")[0] != leader
    assert writer.errors == []
    assert read(cluster, "killed", writer.sent) == list(range(writer.sent))
    assert writer.longest_gap < WITHOUT_THE_HINT_SECONDS


@pytest.mark.chaos
def test_a_killed_leader_is_listed_for_a_while_though_it_leads_nothing_any_more(cluster: Cluster) -> None:
    """If a broker is not listed, librdkafka also forgets its successor as leader, and asks again up to a second later."""
    create(cluster, "listed")
    leader = cluster.leaders("listed")[0]
    cluster.kill(leader)
    listed: list[int] = []

    def replaced() -> bool:
        answer = cluster.metadata(["listed"])
        listed[:] = sorted(broker.node_id for broker in answer.brokers)
        return answer.topics[0].partitions[0].leader_id not in (leader, -1)

    eventually(replaced, "another leader")
    assert listed == [1, 2, 3]
    eventually(lambda: leader not in [b.node_id for b in cluster.metadata(["listed"]).brokers], "it to be left out", 30)


@pytest.mark.chaos
@pytest.mark.parametrize("leads", [True, False], ids=["leader", "follower"])
def test_a_broker_that_was_stopped_is_listed_no_more(cluster: Cluster, leads: bool) -> None:
    """A tool that asks each listed broker, as kafka-consumer-groups --all-groups does, waits 30 s for a broker that is not
    there.
    """
    create(cluster, "left")
    stopped = next(node_id for node_id in cluster.nodes if (node_id == cluster.leaders("left")[0]) == leads)
    cluster.stop(stopped)
    for node_id in sorted(cluster.nodes.keys() - {stopped}):
        eventually(lambda n=node_id: brokers(cluster, n) == 2, f"{node_id} to know that it is fenced")
        assert stopped not in [broker.node_id for broker in cluster.metadata([], node_id).brokers]


def test_a_follower_that_was_away_catches_up_and_is_in_sync_again(cluster: Cluster) -> None:
    create(cluster, "away")
    writer = Writer(cluster, "away")
    writer.write(100)
    writer.flush()
    follower = next(n for n in cluster.nodes if n != cluster.leaders("away")[0])
    cluster.kill(follower)
    eventually(lambda: follower not in cluster.isr("away")[0], "the follower to leave the ISR")
    writer.write(2000)
    writer.flush()
    cluster.start(follower)
    cluster.wait_isr("away")
    others = [n for n in cluster.nodes if n != follower]
    cluster.kill(others[0])  # one of the two brokers that have run all the time
    writer.write(10)
    writer.flush()
    assert read(cluster, "away", writer.sent) == list(range(writer.sent))


def test_two_of_three_replicas_go_on_acknowledging(cluster: Cluster) -> None:
    create(cluster, "two")
    leader = cluster.leaders("two")[0]
    cluster.kill(next(n for n in cluster.nodes if n != leader))
    eventually(lambda: len(cluster.isr("two")[0]) == 2, "the ISR to shrink to two")
    writer = Writer(cluster, "two")
    writer.write(10)
    writer.flush()
    assert len(writer.acknowledged) == 10


def test_below_min_isr_acks_all_is_refused_and_acks_one_is_taken(cluster: Cluster) -> None:
    create(cluster, "strict", min_insync_replicas="3")
    leader = cluster.leaders("strict")[0]
    cluster.kill(next(n for n in cluster.nodes if n != leader))

    def known_to_the_leader() -> bool:
        return len(cluster.metadata(["strict"], leader).topics[0].partitions[0].isr_nodes) == 2

    eventually(known_to_the_leader, "the ISR to shrink to two")
    outcomes: dict[str, Any] = {}
    for acks in ("all", "1"):
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": acks, "retries": 0, "linger.ms": 0})
        producer.produce("strict", b"x", on_delivery=lambda error, _, acks=acks: outcomes.update({acks: error}))
        producer.flush(20)
    assert outcomes["all"].name() == "NOT_ENOUGH_REPLICAS"
    assert outcomes["1"] is None


@pytest.mark.chaos
def test_a_leader_that_sleeps_is_fenced_and_acknowledges_nothing_when_it_wakes(cluster: Cluster) -> None:
    create(cluster, "asleep")
    writer = Writer(cluster, "asleep")
    writer.write(50)
    writer.flush()
    leader = cluster.leaders("asleep")[0]
    cluster.pause(leader)
    try:
        eventually(lambda: cluster.leaders("asleep")[0] not in (leader, -1), "a new leader", seconds=60)
        writer.write(50)
        writer.flush()
    finally:
        cluster.resume(leader)
    writer.write(50)
    writer.flush()
    cluster.wait_isr("asleep")
    assert read(cluster, "asleep", writer.sent) == list(range(writer.sent))


def test_leadership_returns_to_the_preferred_replica_when_asked(cluster: Cluster) -> None:
    create(cluster, "preferred")
    preferred = cluster.leaders("preferred")[0]
    cluster.restart(preferred)
    cluster.wait_isr("preferred")
    assert cluster.leaders("preferred")[0] != preferred
    with Wire(cluster.nodes[1].port) as wire:
        answer = wire.request(
            ElectLeadersRequest(
                election_type=0,
                topic_partitions=[TopicNamePartitions(topic="preferred", partitions=[0])],
                timeout_ms=10_000,
            )
        )
    assert answer.error_code == 0
    eventually(lambda: cluster.leaders("preferred")[0] == preferred, "the preferred leader")


def test_a_partition_moves_to_other_brokers_with_its_records(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("moved", 1, replica_assignment=[[1]])])["moved"].result(20)
    eventually(lambda: cluster.leaders("moved").get(0) == 1, "a leader")
    writer = Writer(cluster, "moved")
    writer.write(500)
    writer.flush()
    with Wire(cluster.nodes[2].port) as wire:
        move = ReassignableTopic(name="moved", partitions=[ReassignablePartition(partition_index=0, replicas=[2, 3])])
        answer = wire.request(AlterPartitionReassignmentsRequest(topics=[move], timeout_ms=10_000))
    assert answer.error_code == 0 and answer.responses[0].partitions[0].error_code == 0
    eventually(lambda: cluster.isr("moved")[0] == [2, 3], "the move to be over")
    assert cluster.leaders("moved")[0] in (2, 3)
    assert read(cluster, "moved", 500) == list(range(500))
    eventually(lambda: not (Path(cluster.nodes[1].dir) / "data" / "moved-0").exists(), "the old replica to be removed")


def test_a_deleted_topic_goes_from_every_disk(cluster: Cluster) -> None:
    create(cluster, "gone", partitions=3)
    folders = [Path(node.dir) / "data" / f"gone-{i}" for node in cluster.nodes.values() for i in range(3)]
    # The first record creates the folder: before it there would be nothing to wait for, and brokers may not know the topic yet.
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for partition in range(3):
        producer.produce("gone", b"x", partition=partition)
    assert producer.flush(20) == 0
    del producer  # its next Metadata request would create the topic again
    eventually(lambda: all(folder.exists() for folder in folders), "the records to come to every disk")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.delete_topics(["gone"])["gone"].result(20)
    eventually(lambda: not any(folder.exists() for folder in folders), "the topic to go everywhere")
    assert admin.describe_topics(TopicCollection(["gone"]))["gone"].exception(20) is not None


def test_a_controlled_restart_hardly_stops_writes(patient: Cluster) -> None:
    cluster = patient
    create(cluster, "handed")
    writer = Writer(cluster, "handed")
    writer.write(300, per_second=500)
    writer.flush()
    leader = cluster.leaders("handed")[0]
    stopping = threading.Thread(target=cluster.stop, args=(leader,))
    stopping.start()
    writer.write(1000, per_second=500)
    writer.flush()
    stopping.join()
    assert writer.errors == []
    assert writer.longest_gap < WITHOUT_THE_HINT_SECONDS
    assert read(cluster, "handed", writer.sent) == list(range(writer.sent))


def test_with_flush_messages_1_a_record_is_acknowledged_when_followers_have_flushed_it(cluster: Cluster) -> None:
    create(cluster, "flushed", flush_messages="1")
    writer = Writer(cluster, "flushed")
    writer.write(200)
    writer.flush()
    assert writer.errors == [] and len(writer.acknowledged) == 200
    cluster.kill(cluster.leaders("flushed")[0])
    writer.write(50)
    writer.flush()
    assert read(cluster, "flushed", writer.sent) == list(range(writer.sent))


def test_a_consumer_is_sent_to_the_follower_in_its_own_rack() -> None:
    racks = {node_id: {"broker.rack": f"r{node_id}"} for node_id in (1, 2, 3)}
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    with Cluster(3, per_node=racks, replica_selector_class=selector, **STEADY) as cluster:
        create(cluster, "racks")
        writer = Writer(cluster, "racks")
        writer.write(100)
        writer.flush()
        leader = cluster.leaders("racks")[0]
        other = next(n for n in cluster.nodes if n != leader)
        topic_id = cluster.metadata(["racks"]).topics[0].topic_id
        asked = FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 20)])
        request = FetchRequest(rack_id=f"r{other}", min_bytes=1, max_wait_ms=500, topics=[asked])
        with Wire(cluster.nodes[leader].port) as wire:
            fetched = wire.request(request).responses[0].partitions[0]
        assert (fetched.preferred_read_replica, bytes(fetched.records or b"")) == (other, b"")
        with Wire(cluster.nodes[other].port) as wire:

            def readable() -> int:
                return int(wire.request(request).responses[0].partitions[0].high_watermark)

            eventually(lambda: readable() == 100, "the follower to get the watermark")
            served = wire.request(request).responses[0].partitions[0]
        assert served.error_code == 0 and len(bytes(served.records or b"")) > 100
