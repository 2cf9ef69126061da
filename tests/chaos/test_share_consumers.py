"""Apache Kafka's verifiable share consumers on three nodes, of which the leader and the share coordinator are killed meanwhile."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.broker.share.share_state import SharePartitionKey
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.testing import Cluster
from tests.broker.conftest import eventually
from tests.broker.share.member import set_group
from tests.broker.wire import Wire
from tests.chaos.share_history import GROUP, TOPIC, VerifiableConsumer
from tests.effort import seeds
from tests.needs import needs_apache_kafka

pytestmark = [needs_apache_kafka, pytest.mark.timeout(400)]

RECORDS = 3_000


def coordinator_of(cluster: Cluster, topic_id: bytes) -> int:
    key = SharePartitionKey(GROUP, topic_id, 0).coordinator_key
    request = FindCoordinatorRequest(key_type=2, coordinator_keys=[key])
    running = next(node for node_id, node in cluster.nodes.items() if cluster.is_running(node_id))
    with Wire(running.port) as wire:
        found = wire.request(request, 6).coordinators[0]
        return -1 if found.error_code else int(found.node_id)


@pytest.mark.parametrize("seed", range(seeds(0, long=1)))
def test_every_record_reaches_a_share_consumer_while_nodes_are_killed(seed: int) -> None:
    with Cluster(3, share_coordinator_state_topic_num_partitions="3") as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 3, 3, config={"min.insync.replicas": "2"})])[TOPIC].result(30)
        with Wire(cluster.nodes[1].port) as wire:
            set_group(wire, GROUP, share_auto_offset_reset="earliest")
        topic_id = cluster.metadata([TOPIC]).topics[0].topic_id
        values: set[str] = set()
        consumers = [VerifiableConsumer(cluster.bootstrap, mode, values) for mode in ("sync", "auto")]
        try:
            producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True})
            for third in range(3):
                for value in range(third * RECORDS // 3, (third + 1) * RECORDS // 3):
                    producer.produce(TOPIC, str(value).encode(), partition=value % 3)
                producer.flush(60)
                eventually(lambda third=third: len(values) > third * RECORDS // 3, "records to be delivered", 90)
                if third < 2:
                    victim = cluster.leaders(TOPIC)[0] if third == 0 else coordinator_of(cluster, topic_id)
                    cluster.kill(victim)
                    eventually(lambda victim=victim: victim not in cluster.leaders(TOPIC).values(), "other leaders", 60)
                    cluster.start(victim)
                    cluster.wait_isr(TOPIC, 3, 90)
            expected = {str(value) for value in range(RECORDS)}
            eventually(lambda: expected <= set(values), "every record to be delivered", 120)
        finally:
            for consumer in consumers:
                consumer.stop()
