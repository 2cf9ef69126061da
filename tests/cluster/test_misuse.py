"""Nodes that do not belong to the cluster: with an id in use, of another cluster, with other voters, with foreign or old
directories.

Each of them is rejected or fenced with one line that says what to do, and all acknowledged records of the cluster are there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.protocol.messages.alter_partition import AlterPartitionRequest
from ottla.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from ottla.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from ottla.protocol.messages.envelope import EnvelopeRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from ottla.protocol.messages.vote import VoteRequest
from ottla.testing import Cluster
from tests.broker.conftest import ROOT, eventually
from tests.broker.wire import Wire
from tests.cluster.test_clocks import make_leader
from tests.cluster.test_three_nodes import Writer, create, read
from tests.ports import free_ports

pytestmark = pytest.mark.timeout(180)

EXIT_SECONDS = 60.0
ANOTHER_CLUSTER = "AnotherClusterAltogeth"
#: Strays give up sooner than after the default minute. The nodes of the cluster have the default sessions, which do not end on
#: a busy machine.
REGISTRATION_TIMEOUT = "initial.broker.registration.timeout.ms"


@pytest.fixture
def own_cluster() -> Iterator[Cluster]:
    """Run a cluster of its own for a test that takes over a node's id or directory."""
    with Cluster(3) as cluster:
        yield cluster


def properties(cluster: Cluster, node_id: int) -> dict[str, str]:
    return dict(cluster._properties[node_id])


class Stray:
    """A node that an operator starts beside the cluster by mistake, as `ottla start`, from the properties of one of its nodes."""

    def __init__(self, cluster: Cluster, like: int, *, level: str = "CRITICAL", **changed: str) -> None:
        port, controller_port, admin_port = free_ports(3)
        self.directory = f"{cluster.directory}/stray-{port}"
        wanted = properties(cluster, like) | {
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "ottla.admin.listener": f"127.0.0.1:{admin_port}",
            "log.dirs": f"{self.directory}/data",
            REGISTRATION_TIMEOUT: "15000",
            # A node that the other voters take for their leader stops after twice this time, and must do so before its
            # registration times out. If the real leader sleeps, the others must have elected another one by then, so their
            # timeout must not be longer.
            "controller.quorum.fetch.timeout.ms": "2000",
        }
        wanted |= {name.replace("_", "."): value for name, value in changed.items()}
        if wanted["process.roles"] == "broker":
            wanted["listeners"] = f"PLAINTEXT://127.0.0.1:{port}"
        command = [sys.executable, "-P", "-m", "ottla.processes.start"]
        for name, value in wanted.items():
            command += ["--override", f"{name}={value}"]
        environment = os.environ | {"PYTHONPATH": str(ROOT), "OTTLA_LOG_LEVEL": level}
        os.makedirs(self.directory)
        self._output = Path(self.directory, "server.log")
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)

    def log(self) -> str:
        return self._output.read_text(encoding="utf-8")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(EXIT_SECONDS)

    def refusal(self) -> str:
        """Return the line with which the node ends."""
        try:
            self.process.wait(EXIT_SECONDS)
        finally:
            self.process.kill()
        lines = self.log().strip().splitlines()
        assert self.process.returncode == 1 and len(lines) == 1, f"exit {self.process.returncode}: {self.log()}"
        return lines[0]


def written(cluster: Cluster, topic: str, count: int = 100) -> Writer:
    create(cluster, topic)
    writer = Writer(cluster, topic)
    writer.write(count)
    writer.flush()
    return writer


def judge(cluster: Cluster, writer: Writer) -> None:
    """Check that the cluster goes on, and that every record is there once."""
    writer.write(50)
    writer.flush()
    assert writer.errors == []
    assert read(cluster, writer.topic, writer.sent) == list(range(writer.sent))


# -- An id in use ----------------------------------------------------------------------------------------------------


@pytest.mark.chaos
def test_a_second_node_with_an_id_in_use_is_refused_and_the_first_does_not_notice(cluster: Cluster) -> None:
    writer = written(cluster, "orders")
    before = cluster.leaders("orders"), cluster.isr("orders")
    # The strays have the ids of the quorum's leader, of a follower, and of the partition's leader. They run at the same time,
    # because each retries until its registration times out.
    strays = [Stray(cluster, node_id) for node_id in cluster.nodes]
    for stray in strays:
        assert "give this node an id of its own" in stray.refusal()
    assert (cluster.leaders("orders"), cluster.isr("orders")) == before
    judge(cluster, writer)


@pytest.mark.chaos
def test_a_silent_node_whose_id_was_taken_over_stops_when_it_wakes(own_cluster: Cluster) -> None:
    cluster = own_cluster
    writer = written(cluster, "taken")
    leader = cluster.leaders("taken")[0]
    cluster.pause(leader)
    successor = Stray(cluster, leader, initial_broker_registration_timeout_ms="60000")
    try:
        eventually(lambda: cluster.leaders("taken")[0] != leader, "the sleeper to be fenced", seconds=60)
        others = [node_id for node_id in cluster.nodes if node_id != leader]
        port = successor_port(successor)

        def has_registered() -> bool:
            assert successor.process.poll() is None, f"the successor ended: {successor.log()}"
            return any(broker.port == port for broker in cluster.metadata(node_id=others[0]).brokers)

        eventually(has_registered, "the successor", seconds=60)
        cluster.resume(leader)
        eventually(lambda: not cluster.is_running(leader), "the sleeper to stop", seconds=30)
        # The leader is replaced as a broker, or as a voter if the successor has been elected meanwhile.
        reasons = ("another process has taken over this node's id", f"another running node has node id {leader}")
        eventually(lambda: any(reason in cluster.log(leader) for reason in reasons), "the line in the log")
        judge(cluster, writer)
    finally:
        successor.stop()


def successor_port(stray: Stray) -> int:
    arguments = stray.process.args
    assert isinstance(arguments, list)
    listeners = next(str(argument) for argument in arguments if str(argument).startswith("listeners="))
    return int(listeners.split(",")[0].rpartition(":")[2])


# -- Another cluster -------------------------------------------------------------------------------------------------


@pytest.mark.chaos
def test_a_voter_with_another_clusters_id_stops_and_says_which_one_it_has(cluster: Cluster) -> None:
    writer = written(cluster, "orders")
    cluster.stop(3)
    refusal = Stray(cluster, 3, cluster_id=ANOTHER_CLUSTER).refusal()
    assert f"belong to another cluster than {ANOTHER_CLUSTER}" in refusal and "cluster.id of theirs" in refusal
    cluster.start(3)
    judge(cluster, writer)


def test_a_broker_with_another_clusters_id_stops_too(cluster: Cluster) -> None:
    stray = Stray(cluster, 3, cluster_id=ANOTHER_CLUSTER, node_id="9", process_roles="broker")
    assert f"belong to another cluster than {ANOTHER_CLUSTER}" in stray.refusal()
    assert len(cluster.metadata().brokers) == 3


# -- Voters that disagree --------------------------------------------------------------------------------------------


def voters(cluster: Cluster, *node_ids: int) -> str:
    by_id = {entry.partition("@")[0]: entry for entry in properties(cluster, 1)["controller.quorum.voters"].split(",")}
    return ",".join(by_id[str(node_id)] for node_id in node_ids)


def test_a_voter_that_is_configured_as_a_quorum_by_itself_does_not_start(cluster: Cluster) -> None:
    writer = written(cluster, "orders")
    cluster.stop(3)
    data = properties(cluster, 3)["log.dirs"]
    refusal = Stray(cluster, 3, controller_quorum_voters=voters(cluster, 3), log_dirs=data).refusal()
    assert "names 3, but this node last voted in a quorum of 1,2,3" in refusal and "Put the old list back" in refusal
    cluster.start(3)
    cluster.wait_isr("orders")
    judge(cluster, writer)


def test_an_empty_node_that_is_a_quorum_by_itself_does_not_take_the_others_down(own_cluster: Cluster) -> None:
    cluster = own_cluster
    writer = written(cluster, "orders")
    cluster.stop(3)
    data = properties(cluster, 3)["log.dirs"]
    shutil.rmtree(data)
    # It has the very port at which the others look for their third voter. Its port for clients is another one: clients would
    # believe it, too.
    listeners = properties(cluster, 3)["listeners"].replace(f":{cluster.nodes[3].port},", f":{free_ports(1)[0]},")
    alone = Stray(
        cluster, 3, controller_quorum_voters=voters(cluster, 3), listeners=listeners, log_dirs=data, level="INFO"
    )
    warning = " acts as a voter, but controller.quorum.voters here is 3; give all nodes the same list"
    try:
        eventually(lambda: warning in alone.log(), "the leader of the two to call it", seconds=30)
        for _ in range(20):
            writer.write(5)
            writer.flush()
            assert cluster.metadata(node_id=1).controller_id != 3
    finally:
        alone.stop()
    shutil.rmtree(data)
    cluster.start(3)
    cluster.wait_isr("orders")
    judge(cluster, writer)


def test_a_voter_that_the_others_do_not_have_on_their_list_stops(cluster: Cluster) -> None:
    writer = written(cluster, "orders")
    # It may follow the leader, as any node may, until it wants to vote. That is soon, because its timeout is shorter than a
    # delayed fetch.
    stray = Stray(
        cluster,
        3,
        node_id="4",
        controller_quorum_voters=voters(cluster, 1, 2) + ",4@127.0.0.1:1",
        controller_quorum_fetch_timeout_ms="100",
    )
    refusal = stray.refusal()
    assert "controller.quorum.voters is not the same everywhere" in refusal and "node 4" in refusal
    judge(cluster, writer)


# -- Directories -----------------------------------------------------------------------------------------------------


def test_the_directory_of_another_node_is_refused(cluster: Cluster) -> None:
    writer = written(cluster, "orders")
    cluster.stop(3)
    data = properties(cluster, 3)["log.dirs"]
    assert (
        "belongs to node 3, and this is node 2: start it with node.id=3" in Stray(cluster, 2, log_dirs=data).refusal()
    )
    cluster.start(3)
    judge(cluster, writer)


def test_a_directory_or_a_port_in_use_is_named(cluster: Cluster) -> None:
    held = properties(cluster, 3)["log.dirs"]
    assert f"{held}/.lock is held by another process" in Stray(cluster, 3, log_dirs=held).refusal()
    busy = properties(cluster, 3)["listeners"]
    address = busy.split(",")[1]
    assert f"cannot listen on {address}: Address already in use" in Stray(cluster, 3, listeners=busy).refusal()


def test_a_copied_directory_with_its_node_id_changed_is_refused(cluster: Cluster) -> None:
    cluster.stop(3)
    copy = Path(cluster.directory, "copy")
    shutil.copytree(properties(cluster, 3)["log.dirs"], copy)
    cluster.start(3)
    meta = copy / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=3", "node.id=9"))
    stray = Stray(cluster, 3, node_id="9", process_roles="broker", log_dirs=str(copy))
    assert "a log directory of this node is registered by another broker, or copied from one" in stray.refusal()


def test_a_node_restored_from_an_old_copy_catches_up_before_it_counts(cluster: Cluster) -> None:
    writer = written(cluster, "restored")
    follower = next(n for n in cluster.nodes if n != cluster.leaders("restored")[0])
    data = Path(properties(cluster, follower)["log.dirs"])
    cluster.stop(follower)
    shutil.copytree(data, data.parent / "backup")
    cluster.start(follower)
    cluster.wait_isr("restored")
    writer.write(500)
    writer.flush()
    cluster.kill(follower)
    shutil.rmtree(data)
    shutil.copytree(data.parent / "backup", data)
    others = [n for n in cluster.nodes if n != follower]
    eventually(lambda: sorted(cluster.isr("restored")[0]) == sorted(others), "the killed one to leave the ISR")
    cluster.start(follower)
    cluster.wait_isr("restored")
    # It is in sync now, so it must have every record, together with either of the others alone.
    cluster.kill(others[0])
    judge(cluster, writer)


@pytest.mark.chaos
def test_a_node_restored_while_the_others_are_away_does_not_lead_with_its_old_log(own_cluster: Cluster) -> None:
    """The broker epoch decides: eligible leaders are the replicas that had every record when the ISR became too small
    (KIP-966).
    """
    cluster = own_cluster
    writer = written(cluster, "alone")
    last = cluster.leaders("alone")[0]
    data = Path(properties(cluster, last)["log.dirs"])
    cluster.stop(last)
    shutil.copytree(data, data.parent / "backup")
    cluster.start(last)
    cluster.wait_isr("alone")
    writer.write(300)
    writer.flush()
    cluster.kill(last)
    shutil.rmtree(data)
    shutil.copytree(data.parent / "backup", data)
    eventually(lambda: last not in cluster.isr("alone")[0], "the killed one to leave the ISR")
    first, second = (n for n in cluster.nodes if n != last)
    cluster.start(last)
    cluster.kill(first)
    cluster.kill(second)
    cluster.start(first, second)
    cluster.wait_isr("alone")
    judge(cluster, writer)


def test_a_wiped_directory_gets_a_new_id_and_its_replicas_again(own_cluster: Cluster) -> None:
    cluster = own_cluster
    writer = written(cluster, "wiped")
    leader = cluster.leaders("wiped")[0]
    data = Path(properties(cluster, leader)["log.dirs"])
    before = (data / "meta.properties").read_text()
    cluster.kill(leader)
    shutil.rmtree(data)
    writer.write(100)
    writer.flush()
    cluster.start(leader)
    assert (data / "meta.properties").read_text().split("directory.id=")[1] != before.split("directory.id=")[1]
    cluster.wait_isr("wiped")
    judge(cluster, writer)
    # It can lead again, too, from its new directory.
    make_leader(cluster, "wiped", leader)
    judge(cluster, writer)


# -- Requests that only nodes send -----------------------------------------------------------------------------------

BETWEEN_NODES = [
    VoteRequest(),
    BeginQuorumEpochRequest(),
    EndQuorumEpochRequest(),
    FetchSnapshotRequest(),
    AlterPartitionRequest(broker_id=1, broker_epoch=1),
    BrokerHeartbeatRequest(broker_id=1, broker_epoch=1, want_fence=True),
    AllocateProducerIdsRequest(broker_id=1, broker_epoch=1),
    AssignReplicasToDirsRequest(broker_id=1, broker_epoch=1),
    EnvelopeRequest(request_data=b"", client_host_address=b""),
]


def controllers_codes(cluster: Cluster, request: object) -> list[ErrorCode]:
    codes = []
    for node in cluster.nodes.values():
        with Wire(node.controller_port) as wire:
            codes.append(ErrorCode(wire.request(request).error_code))
    assert set(codes) <= {ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH}, codes
    return sorted(codes, key=lambda code: code is ErrorCode.STALE_BROKER_EPOCH)


def test_what_only_nodes_ask_is_not_served_to_clients_and_needs_a_brokers_present_epoch(cluster: Cluster) -> None:
    writer = written(cluster, "orders")
    before = cluster.isr("orders")
    for request in BETWEEN_NODES:
        with Wire(cluster.nodes[1].port) as wire:
            wire.send(request)
            frame = wire.receive_frame()
        # Requests are sent by name, because Kafka closes the connection instead of a response: docs/DIFFERENCES.md.
        assert frame is None or ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big") in frame, type(request).__name__
    for request in (r for r in BETWEEN_NODES if getattr(r, "broker_epoch", None) == 1):
        # One of the nodes is the active controller, unless another one is elected during the requests.
        eventually(
            lambda request=request: (
                controllers_codes(cluster, request) == [ErrorCode.NOT_CONTROLLER] * 2 + [ErrorCode.STALE_BROKER_EPOCH]
            ),
            type(request).__name__,
        )
    assert cluster.isr("orders") == before
    judge(cluster, writer)


def test_a_client_that_says_it_is_a_replica_moves_no_watermark_unless_it_is_assigned_and_current(
    cluster: Cluster,
) -> None:
    writer = written(cluster, "orders")
    leader = cluster.leaders("orders")[0]
    follower = next(n for n in cluster.nodes if n != leader)
    topic_id = cluster.metadata(["orders"]).topics[0].topic_id

    def fetch(replica_id: int, replica_epoch: int) -> int:
        asked = FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition=0, fetch_offset=0)])
        state = ReplicaState(replica_id=replica_id, replica_epoch=replica_epoch)
        with Wire(cluster.nodes[leader].port) as wire:
            response = wire.request(FetchRequest(replica_state=state, max_wait_ms=0, topics=[asked]))
        return int(response.responses[0].partitions[0].error_code)

    assert fetch(9, 100) == ErrorCode.NOT_LEADER_OR_FOLLOWER, "no replica of this partition"
    assert fetch(follower, 0) == ErrorCode.NOT_LEADER_OR_FOLLOWER, "a process that was there before (KIP-903)"
    assert len(cluster.isr("orders")[0]) == 3
    judge(cluster, writer)
