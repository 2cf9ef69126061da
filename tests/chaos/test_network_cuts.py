"""Cables that break: a leader without its followers, a controller without its quorum, one direction only, clients alone.

With any cut no broker acknowledges a record that could be lost, and after the heal every acknowledged record is there once.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from benchmarks.racks.network import RackNetwork
from ottla.protocol.errors import ErrorCode
from tests.broker.conftest import eventually
from tests.chaos.direct import ALL, DirectProducer
from tests.chaos.history import PARTITIONS, Load, create_topic, judge, read_everything
from tests.chaos.namespaces import PORT, NamespaceCluster
from tests.chaos.network import CLIENT, SKIP_REASON, available
from tests.effort import LONG, SHORT_SESSIONS

pytestmark = [pytest.mark.timeout(240), pytest.mark.skipif(not available(), reason=SKIP_REASON)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NamespaceCluster]:
    """Yield one cluster for all tests; each of them leaves it whole."""
    with NamespaceCluster(tmp_path_factory.mktemp("cuts"), **SHORT_SESSIONS) as running:
        yield running


def loaded(cluster: NamespaceCluster, topic: str) -> Load:
    create_topic(cluster.bootstrap, 3, topic, min_insync_replicas="2")
    cluster.wait_isr(topic, PARTITIONS)
    load = Load(cluster.bootstrap, topic=topic)
    load.wait_for_acknowledgements(500)
    return load


def nothing_is_wrong(cluster: NamespaceCluster, load: Load, topic: str) -> None:
    load.wait_for_acknowledgements(500)
    load.stop()
    cluster.wait_isr(topic, PARTITIONS)
    assert judge([load], read_everything(cluster.bootstrap, topic, leaders_change=True)) == []


def test_a_leader_cut_off_from_the_others_acknowledges_nothing_and_the_others_go_on(cluster: NamespaceCluster) -> None:
    load = loaded(cluster, "leader-cut")
    leader = cluster.leader("leader-cut", 1)
    witness = next(n for n in cluster.node_ids if n != leader)
    # A client that knows only this node produces before the node is fenced, and again when another broker leads and the node
    # does not know it.
    before, after = (DirectProducer(PORT, "leader-cut", number, cluster.address(leader)) for number in (901, 902))
    cluster.isolate(leader)
    try:
        before.send(ALL, count=20, timeout_ms=60_000)
        cluster.leader("leader-cut", witness, without=leader)
        load.wait_for_acknowledgements(500)
        # The broker has assumed that it was fenced, and has disconnected this client.
        after.send(ALL, count=20, timeout_ms=60_000)
        load.wait_for_acknowledgements(500)
    finally:
        cluster.heal()
    assert before.answer(seconds=60) is not ErrorCode.NONE
    assert after.answer(seconds=60) is not ErrorCode.NONE
    eventually(lambda: cluster.leader_and_isr("leader-cut", leader)[0] not in (leader, -1), "news to arrive", 30)
    nothing_is_wrong(cluster, load, "leader-cut")
    there = {record.producer for record in read_everything(cluster.bootstrap, "leader-cut")}
    assert there == {load.number}, "what only the cut-off leader had is in the log"


@pytest.mark.chaos
@pytest.mark.parametrize("deaf", [False, True], ids=["what the leader sends is cut", "what the leader receives is cut"])
def test_a_leader_cut_off_in_one_direction_loses_nothing_and_recovers(cluster: NamespaceCluster, deaf: bool) -> None:
    topic = f"one-way-{deaf}"
    load = loaded(cluster, topic)
    leader = cluster.leader(topic, 1)
    others = [n for n in cluster.node_ids if n != leader]
    for other in others:
        cluster.cut(*((other, leader) if deaf else (leader, other)))
    try:
        cluster.leader(topic, others[0], without=leader)
        load.wait_for_acknowledgements(500)
    finally:
        cluster.heal()
    nothing_is_wrong(cluster, load, topic)


@pytest.mark.chaos
def test_a_controller_cut_off_from_the_others_is_replaced_and_decides_nothing_more(cluster: NamespaceCluster) -> None:
    load = loaded(cluster, "controller-cut")
    controller = cluster.controller()
    others = [n for n in cluster.node_ids if n != controller]
    cluster.isolate(controller)
    began = time.monotonic()
    try:
        cluster.controller(*others, without=controller)
        create_topic(f"{cluster.only(others[0])},{cluster.only(others[1])}", 2, "decided")
        seconds = time.monotonic() - began
        load.wait_for_acknowledgements(500)
    finally:
        cluster.heal()
    # The quorum's fetch timeout is 2 s; the rest is two elections on a busy machine. A client that was sent to the cut-off node
    # would wait for a minute.
    assert seconds < 30
    eventually(lambda: cluster.controller(controller) != controller, "the old controller to know the new one", 30)
    nothing_is_wrong(cluster, load, "controller-cut")


@pytest.mark.chaos
def test_clients_cut_off_from_a_leader_that_its_followers_reach_wait_and_lose_nothing(
    cluster: NamespaceCluster,
) -> None:
    load = loaded(cluster, "client-cut")
    leader = cluster.leader("client-cut", 1)
    witness = next(n for n in cluster.node_ids if n != leader)
    cluster.cut(CLIENT, leader)
    cluster.cut(leader, CLIENT)
    try:
        # This is longer than a session: if the brokers had lost each other, that would last until the heal.
        time.sleep(10 if LONG else 4)
        eventually(
            lambda: cluster.leader_and_isr("client-cut", witness) == (leader, [1, 2, 3]), "the witness to answer"
        )
    finally:
        cluster.heal()
    nothing_is_wrong(cluster, load, "client-cut")


def test_racks_reach_each_other_after_the_delay_and_not_while_one_is_cut_off() -> None:
    with RackNetwork(2, delay_ms=50, loss=0.0) as network:
        with network.inside(2):
            listening = socket.create_server((network.address(2), 0))
        with network.inside(1):
            began = time.monotonic()
            client = socket.create_connection(listening.getsockname(), timeout=30)
        assert time.monotonic() - began >= 0.1  # the delay there and back
        with listening, client, listening.accept()[0] as server:
            server.settimeout(0.3)
            network.cut(2)
            client.sendall(b"while it is cut off")
            with pytest.raises(TimeoutError):
                server.recv(64)
            network.cut()
            server.settimeout(30)
            assert server.recv(64) == b"while it is cut off"
    assert network.frames_carried > 0
