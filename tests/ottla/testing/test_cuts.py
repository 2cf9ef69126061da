"""Cuts between nodes of a cluster: what the others do without the node that they cannot reach, and what this node does."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from confluent_kafka import ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.testing import Cluster
from ottla.testing.cluster import METADATA_VERSION
from tests.broker.conftest import eventually
from tests.broker.wire import Wire
from tests.chaos.direct import ALL, DirectProducer
from tests.cluster.shared import clear
from tests.effort import SHORT_SESSIONS

pytestmark = pytest.mark.timeout(180)
TOPIC = "cut"
#: On a busy machine another replica may be out of the ISR for a moment, and another one may lead.
FOR_A_MOMENT = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
LAG = {"replica_lag_time_max_ms": "4000", "auto_create_topics_enable": "false"}


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with Cluster(3, cuttable=True, **SHORT_SESSIONS, **LAG) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Iterator[Cluster]:
    yield from cleared(running)


@pytest.fixture(scope="module")
def running_patiently() -> Iterator[Cluster]:
    """Nodes that share two cores with other tests pause for seconds.

    With these settings no other controller is elected then, and no session ends. Also no cut from the controller was mended
    just before, because a broker may be fenced once more when its old connection closes.
    """
    with Cluster(3, cuttable=True, controller_quorum_fetch_timeout_ms="20000", **LAG) as cluster:
        yield cluster


@pytest.fixture
def patient(running_patiently: Cluster) -> Iterator[Cluster]:
    yield from cleared(running_patiently)


def cleared(cluster: Cluster) -> Iterator[Cluster]:
    yield cluster
    cluster.heal()
    clear(cluster)


def controller(cluster: Cluster) -> int:
    """Return the active controller, which Metadata does not name."""
    elected = re.compile(r"is the active controller of epoch (\d+)")
    last: dict[int, int] = {}

    def is_logged() -> bool:
        last.update({node: max([0, *map(int, elected.findall(cluster.log(node)))]) for node in cluster.nodes})
        return any(last.values())

    eventually(is_logged, "the line of the active controller")
    return max(last, key=lambda node_id: last[node_id])


def create(cluster: Cluster, *replicas: int) -> None:
    """One partition, led by the first of its replicas."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, replica_assignment=[list(replicas)])])[TOPIC].result(20)

    def is_led_by_the_first(node_id: int) -> bool:
        if leader(cluster, seen_by=node_id) == replicas[0]:
            return True
        admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(TOPIC, 0)]).result(20)  # its session had ended
        return False

    for node_id in cluster.nodes:
        eventually(lambda n=node_id: is_led_by_the_first(n), f"{TOPIC} on {node_id}", seconds=60)
    cluster.wait_isr(TOPIC)


def leader(cluster: Cluster, *, seen_by: int) -> int:
    try:
        partitions = cluster.metadata([TOPIC], seen_by).topics[0].partitions
    except ConnectionError:  # a broker that assumes that it was fenced sends no response
        return -1
    return int(partitions[0].leader_id) if partitions else -1


def isr(cluster: Cluster, *, seen_by: int) -> list[int]:
    return sorted(cluster.metadata([TOPIC], seen_by).topics[0].partitions[0].isr_nodes)


def write(cluster: Cluster, *, by: int) -> None:
    """Write records to the leader that this node knows, and wait until all in-sync replicas have acknowledged them."""

    def is_acknowledged() -> bool:
        led_by = leader(cluster, seen_by=by)
        if led_by == -1:
            return False
        producer = DirectProducer(cluster.nodes[led_by].port, TOPIC, number=1)
        producer.send(ALL, count=100, timeout_ms=60_000)
        answer = producer.answer(60)
        producer.close()
        assert answer in (ErrorCode.NONE, *FOR_A_MOMENT)
        return answer is ErrorCode.NONE

    eventually(is_acknowledged, "the acknowledgement", seconds=60)


@pytest.mark.parametrize("controls", [False, True], ids=["broker", "active controller"])
def test_a_leader_cut_off_is_replaced_and_comes_back_as_a_follower(cluster: Cluster, controls: bool) -> None:
    alone = next(node_id for node_id in cluster.nodes if (node_id == controller(cluster)) == controls)
    others = [node_id for node_id in cluster.nodes if node_id != alone]
    create(cluster, alone, *others)
    cluster.isolate(alone)
    for node_id in others:
        eventually(lambda n=node_id: leader(cluster, seen_by=n) in others, "another leader", seconds=60)
    assert leader(cluster, seen_by=alone) in (alone, -1)  # no metadata reaches it
    write(cluster, by=others[0])
    cluster.heal()
    eventually(lambda: leader(cluster, seen_by=alone) in others, "the old leader to know the new one", seconds=60)
    eventually(lambda: isr(cluster, seen_by=alone) == [1, 2, 3], "all to be in sync again", seconds=60)


def deliver(cluster: Cluster, **settings: str | int) -> None:
    refused: list[object] = []
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 0, **settings}
    )
    producer.produce(TOPIC, b"x", on_delivery=lambda error, message: refused.append(error))
    assert producer.flush(60) == 0
    assert refused == [None]


@pytest.mark.chaos
def test_a_producer_that_asks_a_leader_cut_off_from_the_others_is_sent_away_and_delivers(cluster: Cluster) -> None:
    """The leader names itself as long as it responds: librdkafka had not delivered the records after 150 s."""
    create(cluster, 1, 2, 3)
    cluster.isolate(1)
    deliver(cluster)


def test_a_leader_cut_off_from_clients_too_answers_none_of_them(cluster: Cluster) -> None:
    create(cluster, 1, 2, 3)
    port = int(cluster.address(1).rpartition(":")[2])
    before = Wire(port)
    before.request(MetadataRequest(topics=[]), METADATA_VERSION)
    cluster.isolate(1, clients=True)
    for wire in (before, Wire(port)):
        wire.sock.settimeout(0.5)
        with pytest.raises(TimeoutError):
            wire.request(MetadataRequest(topics=[]), METADATA_VERSION)
        wire.sock.close()
    deliver(cluster, **{"socket.timeout.ms": 3000, "topic.metadata.refresh.interval.ms": 1000})


@pytest.mark.chaos
def test_a_follower_that_reaches_only_the_controller_leaves_the_isr_and_stays_in_the_cluster(patient: Cluster) -> None:
    third = controller(patient)
    one, other = (node_id for node_id in patient.nodes if node_id != third)
    create(patient, one, other, third)
    patient.partition(one, other)
    write(patient, by=third)
    eventually(lambda: isr(patient, seen_by=third) == sorted([one, third]), "the ISR without the other")
    assert len(patient.metadata([TOPIC], third).brokers) == 3
    patient.heal(one, other)
    eventually(lambda: isr(patient, seen_by=third) == [1, 2, 3], "all to be in sync again", seconds=60)


@pytest.mark.chaos
def test_a_follower_whose_sends_are_cut_leaves_the_isr_although_it_receives(patient: Cluster) -> None:
    third = controller(patient)
    led_by, mute = (node_id for node_id in patient.nodes if node_id != third)
    create(patient, led_by, mute, third)
    patient.partition(mute, led_by, one_way=True)
    write(patient, by=third)
    eventually(lambda: isr(patient, seen_by=third) == sorted([led_by, third]), "the ISR without the mute one")
    patient.heal()
    eventually(lambda: isr(patient, seen_by=third) == [1, 2, 3], "all to be in sync again", seconds=60)


def test_without_proxies_a_cut_says_what_is_missing() -> None:
    cluster = Cluster(1)
    try:
        with pytest.raises(RuntimeError, match="cuttable=True"):
            cluster.partition(1, 1)
    finally:
        cluster.close()
