"""Coordinators on three nodes: they move with the leaders of their partitions, and transactions span brokers."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_producers import DescribeProducersRequest
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest
from ottla.protocol.messages.shared_structs import TopicPartitionIndexes
from ottla.protocol.primitives import uuid_to_str
from ottla.testing import Cluster
from tests.broker.conftest import eventually
from tests.broker.groups.share.wire_member import WireMember
from tests.broker.share.state_client import StateClient
from tests.broker.wire import Wire
from tests.chaos.exactly_once import read_committed
from tests.chaos.history import Load
from tests.cluster.coordinators import (
    SHARE,
    coordinator_of,
    group_coordinator,
    group_id_at,
    transactional_id_at,
)
from tests.cluster.shared import PATIENT, WITHOUT_THE_HINT_SECONDS, make_topics
from tests.cluster.transactor import Nodes, Transactor

pytestmark = pytest.mark.timeout(180)

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
PARTITIONS = 3
LIMIT_SECONDS = 60
SWEEP_MS = 500


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    # Kafka's default for the search for timed-out transactions is ten seconds.
    with Cluster(3, transaction_abort_timed_out_transaction_cleanup_interval_ms=str(SWEEP_MS), **PATIENT) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Iterator[Cluster]:
    """Yield the cluster; after the test every node runs, and leads the partitions that it led at first."""
    yield running
    for node_id in running.nodes:
        if running.is_running(node_id):
            running.resume(node_id)
    running.start(*running.nodes)
    eventually(lambda: lead_as_given(running), "the first replicas to lead", LIMIT_SECONDS)


def lead_as_given(cluster: Cluster) -> bool:
    """Return whether every node names the original leaders. A node that has slept says so for a moment, although it cannot be
    elected yet.
    """
    answers = [cluster.metadata(node_id=node_id) for node_id in cluster.nodes]
    partitions = [each for answer in answers for topic in answer.topics for each in topic.partitions]
    if any(len(each.isr_nodes) < len(each.replica_nodes) for each in partitions):
        return False
    if all(each.leader_id == each.replica_nodes[0] for each in partitions):
        return True
    with Wire(cluster.nodes[1].port) as wire:
        answer = wire.request(ElectLeadersRequest(topic_partitions=None))
    assert answer.error_code == 0
    return False


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """Return a topic with one partition led by each node, which every node knows."""
    name = re.sub("[^a-z]", ".", request.node.name)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    make_topics(admin, NewTopic(name, PARTITIONS, 3))
    for node_id in cluster.nodes:
        eventually(
            lambda node_id=node_id: leaders_known(cluster, name, node_id) == PARTITIONS, f"{name} to have leaders"
        )
    return name


def leaders_known(cluster: Cluster, topic: str, node_id: int) -> int:
    partitions = cluster.metadata([topic], node_id).topics[0].partitions
    return len({partition.leader_id for partition in partitions} - {-1})


def led_by(cluster: Cluster, topic: str, node_id: int) -> int:
    return next(partition for partition, leader in cluster.leaders(topic).items() if leader == node_id)


def is_stable_everywhere(nodes: Nodes, topic: str) -> bool:
    """Return whether no transaction is open, neither in the topic nor in the group's offsets."""
    names = {topic, OFFSETS} & {each.name for each in nodes.cluster.metadata().topics}
    return all(nodes.is_stable(name, index) for name in names for index in nodes.cluster.leaders(name))


def test_transactions_in_quick_succession_over_three_brokers_are_never_refused(cluster: Cluster, topic: str) -> None:
    """Each transaction begins while markers of the last one are missing: its coordinator, its partitions and its group's
    coordinator are on different brokers.
    """
    transactor = Transactor(cluster, transactional_id_at(cluster, 1, topic))
    group_id = group_id_at(cluster, 2, topic)
    expected = []
    for number in range(30):
        transactor.commit_offset(group_id, topic, number)
        for partition in range(PARTITIONS):
            transactor.produce(topic, partition, str(number).encode())
        transactor.end(commit=number % 3 != 0)
        if number % 3:
            expected += [str(number).encode()] * PARTITIONS
    assert transactor.committed_offset(group_id, topic) == 29
    eventually(lambda: is_stable_everywhere(transactor, topic), "every marker")
    assert sorted(read_committed(cluster, topic)) == sorted(expected)


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("victim", "commit"),
    [
        ("transaction coordinator", True),
        ("transaction coordinator", False),
        ("group coordinator", True),
        ("leader", False),
    ],
)
def test_a_broker_killed_in_the_middle_of_a_transaction_takes_none_of_it_away(
    cluster: Cluster, topic: str, victim: str, commit: bool
) -> None:
    transactor = Transactor(cluster, transactional_id_at(cluster, 1, topic))
    group_id = group_id_at(cluster, 2, topic)
    transactor.commit_offset(group_id, topic, 1)
    transactor.end(commit=True)
    for partition in range(PARTITIONS):
        transactor.produce(topic, partition, b"before")
    transactor.commit_offset(group_id, topic, 2)
    cluster.kill({"transaction coordinator": 1, "group coordinator": 2, "leader": 3}[victim])
    for partition in range(PARTITIONS):
        transactor.produce(topic, partition, b"after")
    transactor.commit_offset(group_id, topic, 3)
    transactor.end(commit=commit)
    assert transactor.committed_offset(group_id, topic) == (3 if commit else 1)
    eventually(lambda: is_stable_everywhere(transactor, topic), "every marker")
    expected = [b"after", b"before"] * PARTITIONS if commit else []
    assert sorted(read_committed(cluster, topic)) == sorted(expected)


def test_every_replica_describes_the_producers_that_it_knows(cluster: Cluster, topic: str) -> None:
    transactor = Transactor(cluster, transactional_id_at(cluster, 1, topic))
    transactor.produce(topic, 0, b"first")
    request = DescribeProducersRequest(topics=[TopicPartitionIndexes(name=topic, partition_indexes=[0])])

    def producers(node_id: int) -> list[tuple[int, int, bool]]:
        with Wire(cluster.nodes[node_id].port) as wire:
            (answer,) = wire.request(request).topics[0].partitions
        assert answer.error_code == ErrorCode.NONE
        return [(p.producer_id, p.producer_epoch, p.current_txn_start_offset >= 0) for p in answer.active_producers]

    for node_id in cluster.nodes:
        assert producers(node_id) == [(transactor.producer_id, transactor.epoch, True)]
    transactor.end(commit=True)


@pytest.mark.chaos
def test_what_a_dead_producer_left_open_is_aborted_by_the_next_coordinator_when_its_time_is_up(
    cluster: Cluster, topic: str
) -> None:
    transactor = Transactor(cluster, transactional_id_at(cluster, 1, topic), timeout_ms=10_000)
    group_id = group_id_at(cluster, 2, topic)
    for partition in range(PARTITIONS):
        transactor.produce(topic, partition, b"left behind")
    transactor.commit_offset(group_id, topic, 5)
    cluster.kill(1)
    eventually(lambda: is_stable_everywhere(transactor, topic), "the abort", LIMIT_SECONDS)
    assert transactor.committed_offset(group_id, topic) == -1
    assert read_committed(cluster, topic) == []


@pytest.mark.chaos
def test_librdkafka_commits_a_transaction_whose_coordinator_and_leaders_die_one_after_the_other(
    cluster: Cluster, topic: str
) -> None:
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "transactional.id": transactional_id_at(cluster, 1, topic),
            "log_level": 0,
        }
    )
    producer.init_transactions(LIMIT_SECONDS)
    expected = []
    for victim in (1, 2, 3):
        producer.begin_transaction()
        for moment in (b"before", b"after"):
            for partition in range(PARTITIONS):
                producer.produce(topic, moment, partition=partition)
                expected.append(moment)
            producer.flush(LIMIT_SECONDS)
            if moment == b"before":
                cluster.kill(victim)
        producer.commit_transaction(LIMIT_SECONDS)
        cluster.start(victim)
        for each in cluster.metadata().topics:
            cluster.wait_isr(each.name)
    eventually(lambda: is_stable_everywhere(Nodes(cluster), topic), "every marker")
    assert sorted(read_committed(cluster, topic)) == sorted(expected)


class Member:
    """A consumer that commits each record after it has read it, and remembers when and which."""

    def __init__(self, cluster: Cluster, group_id: str, topic: str) -> None:
        self.read: list[tuple[int, int]] = []
        self.committed: dict[int, int] = {}
        self.times: list[float] = []
        self.assignments = 0
        self.partitions: set[int] = set()
        self._stopped = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": group_id,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assignments += 1
        self.partitions = {each.partition for each in partitions}

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.partitions = set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            message = self._consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            self.read.append((message.partition(), message.offset()))
            while not self._stopped.is_set():
                try:
                    self._consumer.commit(message, asynchronous=False)
                except KafkaException:
                    continue  # no later commit in the partition could replace that of its last record
                self.committed[message.partition()] = message.offset() + 1
                self.times.append(time.monotonic())
                break

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(LIMIT_SECONDS)
        self._consumer.close()


@pytest.mark.parametrize("how", ["killed", "stopped in order"])
def test_members_go_on_where_they_were_when_their_coordinator_is(cluster: Cluster, topic: str, how: str) -> None:
    group_id = group_id_at(cluster, 2, topic)
    members = [Member(cluster, group_id, topic) for _ in range(2)]
    # The first member has all partitions for a moment; counting begins when both members have their share.
    eventually(lambda: sorted(len(member.partitions) for member in members) == [1, 2], "the group", LIMIT_SECONDS)
    load = Load(cluster.bootstrap, topic=topic, partitions=PARTITIONS, per_second=200, settings={"linger.ms": 0})
    try:
        eventually(lambda: all(len(member.times) > 20 for member in members), "commits", LIMIT_SECONDS)
        assignments = [member.assignments for member in members]
        cluster.kill(2) if how == "killed" else cluster.stop(2)
        before = [len(member.times) for member in members]
        eventually(
            lambda: all(len(member.times) > known + 20 for member, known in zip(members, before, strict=True)),
            "commits at the next coordinator",
            LIMIT_SECONDS,
        )
        assert group_coordinator(cluster, group_id) != 2
        load.stop()
        assert load.failed == []
        eventually(
            lambda: sum(offset for member in members for offset in member.committed.values()) == load.sent,
            "everything to be committed",
            LIMIT_SECONDS,
        )
        # This is checked before the members stop: they leave one after the other, and the last one takes over the partitions of
        # the first.
        assert [member.assignments for member in members] == assignments, (
            "no member left, so nothing is to be rebalanced"
        )
    finally:
        for member in members:
            member.stop()
    nodes = Nodes(cluster)
    for member in members:
        for partition, offset in member.committed.items():
            assert nodes.committed_offset(group_id, topic, partition) == offset
        # No record was lost or read again: each partition was read without a gap from its start.
        for partition in {partition for partition, _ in member.read}:
            offsets = [offset for other, offset in member.read if other == partition]
            assert offsets == list(range(len(offsets)))
    if how == "stopped in order":
        gap = max(later - earlier for member in members for earlier, later in pairwise(member.times))
        assert gap < WITHOUT_THE_HINT_SECONDS, f"members waited {gap:.2f} s for the next coordinator"


def test_the_states_of_share_partitions_are_reached_over_brokers_and_survive_their_coordinator(
    cluster: Cluster, topic: str
) -> None:
    """The group coordinator initializes the states through the coordinator of each share partition; a new coordinator knows
    them from the log.
    """
    with Wire(cluster.nodes[group_coordinator(cluster, "share")].port) as wire:
        member = WireMember(wire, "share")
        eventually(lambda: member.joins(topic), "the member to join", LIMIT_SECONDS)
        eventually(lambda: member.has([0, 1, 2]), "the share partitions to be initialized", LIMIT_SECONDS)
    topic_id = cluster.metadata([topic]).topics[0].topic_id
    key = f"share:{uuid_to_str(topic_id)}:0"
    former = coordinator_of(cluster, SHARE, key)
    with Wire(cluster.nodes[former].port) as wire:
        state = StateClient(wire, "share", topic_id)
        epoch = state.read(leader_epoch=5).state_epoch
        assert state.write((3, 9, 2, 1), state_epoch=epoch, leader_epoch=5, start_offset=3).error_code == ErrorCode.NONE
    cluster.kill(former)
    eventually(lambda: coordinator_of(cluster, SHARE, key) != former, "another coordinator", LIMIT_SECONDS)
    with Wire(cluster.nodes[coordinator_of(cluster, SHARE, key)].port) as wire:
        state = StateClient(wire, "share", topic_id)
        eventually(lambda: state.summary().error_code == ErrorCode.NONE, "the state to be loaded", LIMIT_SECONDS)
        assert state.write(state_epoch=epoch, leader_epoch=4).error_code == ErrorCode.FENCED_LEADER_EPOCH
        found = state.read(leader_epoch=5)
        assert (found.state_epoch, found.start_offset, len(found.state_batches)) == (epoch, 3, 1)
