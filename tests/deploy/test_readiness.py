"""The two probes show whether clients should be sent to a node, and whether a restart would help, even while other nodes are
gone.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Cluster
from tests.cluster.shared import clear, make_topics
from tests.deploy.nodes import eventually

pytestmark = pytest.mark.timeout(240)


def probe(cluster: Cluster, node_id: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{cluster.nodes[node_id].admin_port}{path}", timeout=10
        ) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def ready(cluster: Cluster, node_id: int) -> bool:
    return probe(cluster, node_id, "/readyz")[0] == 200


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with Cluster(3, cuttable=True) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Iterator[Cluster]:
    yield running
    running.heal()
    clear(running)


@pytest.mark.chaos
def test_one_that_is_left_of_three_is_alive_and_not_ready_until_another_is_back(cluster: Cluster) -> None:
    eventually(lambda: all(ready(cluster, node_id) for node_id in cluster.nodes), "all of three")
    cluster.kill(1)
    eventually(lambda: ready(cluster, 2) and ready(cluster, 3), "two of three are a quorum")
    cluster.kill(2)
    eventually(lambda: "[-] quorum" in probe(cluster, 3, "/readyz")[1], "one of three is none")
    assert not ready(cluster, 3)
    assert probe(cluster, 3, "/healthz")[0] == 200, "restarting it would not bring the others back"
    cluster.start(2)
    eventually(lambda: ready(cluster, 2) and ready(cluster, 3), "a quorum again")


@pytest.mark.chaos
def test_one_that_comes_back_is_ready_when_its_replicas_are_in_sync_again(cluster: Cluster) -> None:
    """Before the fix an update of a StatefulSet stopped the next node while the replicas of the last one lagged: producers got
    NOT_ENOUGH_REPLICAS.
    """
    admin = AdminClient(cluster.client_settings)
    make_topics(admin, NewTopic("orders", 6, 3))
    cluster.wait_isr("orders")
    cluster.stop(3)
    producer = Producer({**cluster.client_settings, "linger.ms": 5})
    for _ in range(6_000):
        producer.produce("orders", b"x" * 10_000)
        producer.poll(0)
    assert producer.flush(60) == 0
    cluster.start(3)
    eventually(lambda: ready(cluster, 3), "the one that came back")
    # These are the ISRs by the node's own metadata; the other nodes get them a moment later.
    isrs = [partition.isr_nodes for partition in cluster.metadata(["orders"], 3).topics[0].partitions]
    assert len(isrs) == 6 and all(3 in isr for isr in isrs), isrs


@pytest.mark.chaos
def test_one_that_is_cut_off_is_not_ready_and_the_others_are(cluster: Cluster) -> None:
    cluster.isolate(2)
    eventually(lambda: not ready(cluster, 2), "the one alone to see it")
    assert probe(cluster, 2, "/healthz")[0] == 200
    eventually(lambda: ready(cluster, 1) and ready(cluster, 3), "the others to go on")
    cluster.heal()
    eventually(lambda: all(ready(cluster, node_id) for node_id in cluster.nodes), "all to be ready again")
