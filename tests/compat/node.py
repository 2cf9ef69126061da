"""A node or a cluster for a suite: `ottla start` with the suite's properties on fresh directories."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ottla.testing import Cluster

READY_SECONDS_MAX = 60
STOP_SECONDS_MAX = 30
DEFAULTS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",  # kafka-python's group tests ask for 3 s; Kafka's default rejects that
}
#: The other settings are those of three nodes of Apache Kafka in the baseline: topics that the tests create without settings
#: have one replica, and nodes without authentication need ClusterAction as User:ANONYMOUS.
CLUSTER_DEFAULTS = {
    "super.users": "User:ANONYMOUS",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
}


@contextmanager
def serving_from(data: Path, port: int, log: Path, **properties: str) -> Iterator[str]:
    """Run a node on the directory that a node of `tools.apache_kafka` used at this port. Yield its address, and keep the
    data.
    """
    values = {
        "node.id": "1",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 100}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.quorum.voters": f"1@127.0.0.1:{port + 100}",
        "log.dirs": str(data),
        "offsets.topic.replication.factor": "1",
        **DEFAULTS,
        **properties,
    }
    with _started(values, log):
        yield f"127.0.0.1:{port}"


@contextmanager
def running_node(port: int, log: Path, node_id: int = 0, **properties: str) -> Iterator[str]:
    """Start a node, and yield its bootstrap address; stop it and remove its data afterwards.

    Property names are written with underscores for dots; one with an empty value is not set.
    """
    data = Path(tempfile.mkdtemp(prefix="ottla-compat-"))
    values = {
        "node.id": str(node_id),
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 1}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.quorum.voters": f"{node_id}@127.0.0.1:{port + 1}",
        "log.dirs": str(data),
        **DEFAULTS,
        **{name.replace("_", "."): value for name, value in properties.items()},
    }
    try:
        with _started({name: value for name, value in values.items() if value}, log):
            yield f"127.0.0.1:{port}"
    finally:
        shutil.rmtree(data, ignore_errors=True)


@contextmanager
def _started(values: dict[str, str], log: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "ottla", "start"]
    for name, value in values.items():
        command += ["--override", f"{name}={value}"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            _wait_until_ready(process, log)
            yield
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def running_cluster(nodes: int, directory: Path, **properties: str) -> Iterator[str]:
    """Run nodes 1 to `nodes`, each in a rack of its own, on free ports. Yield their addresses. Their logs stay in
    `directory`.
    """
    given = {name.replace("_", "."): value for name, value in properties.items()}
    common = {**DEFAULTS, **CLUSTER_DEFAULTS, **given}  # a property of one node replaces that of the cluster
    per_node = {node_id: {**common, "broker.rack": f"RACK{node_id}"} for node_id in range(1, nodes + 1)}
    cluster = Cluster(nodes, directory=str(directory), per_node=per_node)
    try:
        with cluster:
            yield cluster.bootstrap
    finally:
        for node in cluster.nodes.values():
            shutil.rmtree(Path(node.dir) / "data", ignore_errors=True)


def _wait_until_ready(process: subprocess.Popen[bytes], log: Path) -> None:
    """Read the node's own output instead of trying the port, because another process may listen there."""
    deadline = time.monotonic() + READY_SECONDS_MAX
    while "Kafka Server started" not in log.read_text(errors="replace"):
        if process.poll() is not None:
            raise RuntimeError(f"the node ended at once: {log.read_text(errors='replace')[-1000:]}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"the node did not start within {READY_SECONDS_MAX} s: {log}")
        time.sleep(0.02)
