"""A share group on three nodes: leaders and the share coordinator are killed while records are produced, delivered and acknowledged."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.broker.share.share_state import SharePartitionKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.testing import Cluster
from tests.broker.conftest import eventually
from tests.broker.share.member import ACCEPT, ShareMember, set_group
from tests.broker.share.state_client import StateClient
from tests.broker.wire import Wire
from tests.cluster.share_consumers import Deliveries, ShareConsumer, any_node
from tests.cluster.shared import STEADY, make_topics

pytestmark = pytest.mark.timeout(240)

TOPIC, GROUP, PARTITIONS = "jobs", "workers", 3


class Load:
    """A producer that goes on until it is stopped. Every seventh record has to be released once."""

    def __init__(self, cluster: Cluster) -> None:
        self.acknowledged: set[bytes] = set()
        self._sent = 0
        self._producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 5}
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(0.01):
            for _ in range(5):
                self._sent += 1
                value = b"%d%s" % (self._sent, b" again" if self._sent % 7 == 0 else b"")
                self._producer.produce(TOPIC, value, partition=self._sent % PARTITIONS, on_delivery=self._delivered)
            self._producer.poll(0)

    def _delivered(self, error: object, message: Any) -> None:
        if error is None:
            self.acknowledged.add(message.value())

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(60) == 0


def coordinator_of(cluster: Cluster, key: SharePartitionKey) -> int:
    """Return the node that coordinates the share partition; -1 while there is none."""
    request = FindCoordinatorRequest(key_type=2, coordinator_keys=[key.coordinator_key])
    found = any_node(cluster, lambda wire: wire.request(request, 6).coordinators[0])
    return -1 if found.error_code else int(found.node_id)


def initialize(cluster: Cluster, key: SharePartitionKey) -> bool:
    node_id = coordinator_of(cluster, key)
    if node_id < 0:
        return False
    with Wire(cluster.nodes[node_id].port) as wire:
        return not StateClient(wire, key.group_id, key.topic_id, key.partition).initialize().error_code


def is_finished(cluster: Cluster, key: SharePartitionKey) -> bool:
    """Return whether all records are finished, by the share coordinator: it may have written an acceptance whose response was
    lost.
    """
    topic = [
        ListOffsetsTopic(name=TOPIC, partitions=[ListOffsetsPartition(partition_index=key.partition, timestamp=-1)])
    ]
    leader, coordinator = cluster.leaders(TOPIC)[key.partition], coordinator_of(cluster, key)
    if coordinator < 0 or leader < 0:
        return False
    with Wire(cluster.nodes[leader].port) as wire:
        end: int = wire.request(ListOffsetsRequest(topics=topic)).topics[0].partitions[0].offset
    with Wire(cluster.nodes[coordinator].port) as wire:
        summary = StateClient(wire, key.group_id, key.topic_id, key.partition).summary()
    return not summary.error_code and summary.start_offset + summary.delivery_complete_count == end


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, share_coordinator_state_topic_num_partitions="3", **STEADY) as cluster:
        yield cluster


def test_a_broker_that_does_not_lead_the_partition_names_its_leader(cluster: Cluster) -> None:
    """ShareFetch and ShareAcknowledge have this, too (KIP-951)."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    make_topics(admin, NewTopic("elsewhere", 1, 3))
    # The node that is asked may learn of the topic later than the node that has created it.
    cluster.wait_isr("elsewhere", 3)
    at = (cluster.metadata(["elsewhere"]).topics[0].topic_id, 0)
    leader = cluster.leaders("elsewhere")[0]
    other = next(number for number in cluster.nodes if number != leader)

    def refusal(answer: Any) -> Any:
        assert answer.error_code == ErrorCode.NONE, answer
        return answer.responses[0].partitions[0]

    with Wire(cluster.nodes[other].port) as wire:
        member = ShareMember(wire, "strays", [at])
        eventually(
            lambda: refusal(member.fetch_response(max_wait_ms=0)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER,
            "the broker to know the partition",
            30,
        )
        fetched = member.fetch_response({at: [(0, 0, [ACCEPT])]}, max_wait_ms=0)
    assert refusal(fetched).current_leader.leader_id == leader
    assert [endpoint.node_id for endpoint in fetched.node_endpoints] == [leader]


def test_every_record_is_delivered_while_leaders_and_the_share_coordinator_are_killed(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    make_topics(admin, NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"}))
    any_node(cluster, lambda wire: set_group(wire, GROUP, share_auto_offset_reset="earliest"))
    topic_id = cluster.metadata([TOPIC]).topics[0].topic_id
    keys = [SharePartitionKey(GROUP, topic_id, index) for index in range(PARTITIONS)]
    for key in keys:
        eventually(lambda key=key: initialize(cluster, key), f"{key} to be initialized", 60)
    deliveries = Deliveries()
    consumers = [ShareConsumer(cluster, GROUP, TOPIC, topic_id, deliveries) for _ in range(3)]
    load = Load(cluster)

    def goes_on() -> None:
        before = len(deliveries.accepted)
        eventually(lambda: len(deliveries.accepted) > before + 100, "records to be accepted", 60)

    goes_on()
    for victim_of in (lambda: cluster.leaders(TOPIC)[0], lambda: coordinator_of(cluster, keys[1])):
        eventually(lambda victim_of=victim_of: victim_of() > 0, "a victim", 60)
        victim = victim_of()
        cluster.kill(victim)
        goes_on()
        cluster.start(victim)
        cluster.wait_isr(TOPIC, 3, 60)
        goes_on()
    load.stop()
    for key in keys:
        eventually(lambda key=key: is_finished(cluster, key), f"all records of {key} to be finished", 90)
    for consumer in consumers:
        consumer.stop()
    assert not deliveries.wrong, deliveries.wrong[:5]
    assert load.acknowledged <= set(deliveries.values.values()), "invariant 56: a record was never delivered"
    released = [place for place, value in deliveries.values.items() if (value or b"").endswith(b"again")]
    assert released
    assert all(max(deliveries.counts[place]) >= 2 for place in released), "a released record is delivered again"
