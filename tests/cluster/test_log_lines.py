"""The log of a node has lines for ordinary events that an operator finds: stock clients, real processes, nothing but `grep`."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from ottla.testing import Cluster
from tests.broker.conftest import eventually
from tests.chaos.roles import active_controller
from tests.cluster.shared import PATIENT
from tests.cluster.test_three_nodes import create

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(
        3,
        # A sleeping follower leaves the ISR soon, because of its leader and not because its session ends; a follower on a busy
        # machine stays.
        replica_lag_time_max_ms="6000",
        **PATIENT,
        transaction_abort_timed_out_transaction_cleanup_interval_ms="100",
        group_initial_rebalance_delay_ms="0",
    ) as running:
        yield running


def said(cluster: Cluster, pattern: str) -> list[str]:
    """Return the lines of all nodes that contain the pattern."""
    lines = [line for node_id in cluster.nodes for line in cluster.log(node_id).splitlines()]
    return [line for line in lines if re.search(pattern, line)]


def wait_for(cluster: Cluster, pattern: str) -> str:
    eventually(lambda: said(cluster, pattern), pattern)
    return said(cluster, pattern)[0]


def consumer(cluster: Cluster, group: str, topic: str) -> Consumer:
    made = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    made.subscribe([topic])
    return made


def test_a_consumer_comes_and_goes(cluster: Cluster) -> None:
    create(cluster, "orders")
    shop = consumer(cluster, "shop", "orders")

    def assigned() -> bool:
        shop.poll(0.1)
        return bool(shop.assignment())

    eventually(assigned, "an assignment")
    shop.close()
    began = wait_for(cluster, "Preparing to rebalance group shop in state Empty with old generation 0")
    assert " INFO " in began and "(reason: adding new member rdkafka-" in began
    for phrase in (
        "Stabilized group shop generation 1 with 1 members",
        "Assignment received from leader rdkafka-.* for group shop for generation 1",
        "Member rdkafka-.* has left group shop through explicit LeaveGroup",
        "Group shop with generation 2 is now empty",
        "Finished loading of metadata from __consumer_offsets-[0-9]+ with epoch 0 in [0-9]+ ms",
    ):
        assert " INFO " in wait_for(cluster, phrase)


@pytest.mark.chaos
def test_a_transaction_that_is_given_up_and_one_that_is_fenced(cluster: Cluster) -> None:
    create(cluster, "paid")

    def begun(name: str, timeout_ms: int) -> Producer:
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "transactional.id": name, "transaction.timeout.ms": timeout_ms}
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("paid", b"x")
        producer.flush(30)
        return producer

    # librdkafka gives up a record after the same time.
    forgotten = begun("forgotten", 6000)
    wait_for(cluster, "Initialized transactionalId forgotten with producerId [0-9]+ and producer epoch 0")
    wait_for(cluster, r"Rollback of ongoing transaction for transactionalId forgotten due to timeout \(6000 ms\)")
    with pytest.raises(KafkaException):
        forgotten.commit_transaction(30)
    former = begun("taken", 60_000)
    begun("taken", 60_000).abort_transaction(30)
    wait_for(cluster, "Fencing the producer of transactionalId taken .*, whose transaction is ongoing")
    wait_for(cluster, "Initialized transactionalId taken with producerId [0-9]+ and producer epoch [1-9]")
    wait_for(cluster, "Finished loading of metadata from __transaction_state-[0-9]+ with epoch 0")
    with pytest.raises(KafkaException):
        former.commit_transaction(30)


@pytest.mark.chaos
def test_a_follower_that_sleeps_and_wakes(cluster: Cluster) -> None:
    create(cluster, "replicated")
    leader = cluster.leaders("replicated")[0]
    wait_for(cluster, "Leader replicated-0 starts at leader epoch 0 from offset 0 with partition epoch 0")
    wait_for(cluster, f"Follower replicated-0 starts at leader epoch 0 .* Current leader is {leader}")
    # The node is neither the leader nor the active controller, so that the quorum stays as it is.
    active = active_controller(cluster)
    asleep = next(node_id for node_id in cluster.nodes if node_id not in (leader, active))
    # The leader knows a follower's offset since its first Fetch, which comes after the line.
    first, producer = (Producer({"bootstrap.servers": cluster.bootstrap, "acks": acks}) for acks in ("all", "1"))
    first.produce("replicated", b"x", partition=0)
    assert not first.flush(30)
    cluster.pause(asleep)
    producer.produce("replicated", b"x", partition=0)
    producer.flush(10)
    left = ",".join(str(node_id) for node_id in cluster.nodes if node_id != asleep)
    shrinking = wait_for(cluster, f"Shrinking ISR from 1,2,3 to {left} in replicated-0")
    assert " INFO " in shrinking and f"Out of sync replicas: (brokerId: {asleep}, endOffset: 1" in shrinking
    wait_for(cluster, f"ISR updated to {left} and version updated to 1 in replicated-0")
    cluster.resume(asleep)
    wait_for(cluster, f"Expanding ISR from {left} to 1,2,3 in replicated-0")
    wait_for(cluster, r"ISR updated to 1,2,3 and version updated to \d+ in replicated-0")


def test_a_killed_node_comes_back(cluster: Cluster) -> None:
    create(cluster, "kept")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    producer.produce("kept", b"x", partition=0)
    producer.flush(10)
    killed = cluster.leaders("kept")[0]
    cluster.kill(killed)
    wait_for(cluster, "Leader kept-0 starts at leader epoch 1 from offset 1")
    cluster.start(killed)
    wait_for(cluster, "Beginning recovery of the logs in .*, as no clean shutdown file was found")
    wait_for(cluster, "Recovered unflushed segments of kept-0 from recovery point 0 to log end offset 1")
    wait_for(cluster, r"\[raft \d\] Candidate -> Leader in epoch \d+")
    cluster.restart(killed)
    wait_for(cluster, "Skipping recovery of the logs in .*, as a clean shutdown file was found")
    cluster.wait_isr("kept")
