"""Controllers and brokers as processes of their own, configured as a user does it: each has a properties file, and is run by
`ottla start`.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ottla.protocol.messages.describe_quorum import DescribeQuorumRequest, PartitionDataResponse, TopicDataRequest
from ottla.protocol.messages.shared_structs import PartitionIndex
from ottla.protocol.primitives import uuid_from_str
from tests.broker.conftest import ROOT, eventually
from tests.broker.wire import Wire
from tests.ports import free_ports

HOST = "127.0.0.1"
STARTED = "Kafka Server started"
START_SECONDS_MAX = 90
STOP_SECONDS_MAX = 30
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
FIRST_BROKER = 11
DESCRIBE_QUORUM = DescribeQuorumRequest(
    topics=[TopicDataRequest(topic_name="__cluster_metadata", partitions=[PartitionIndex()])]
)


@dataclass
class Process:
    """The process of a node."""

    id: int
    port: int
    directory: Path
    properties: dict[str, str]
    process: subprocess.Popen[bytes] | None = None

    @property
    def file(self) -> Path:
        return self.directory / "server.properties"

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def log(self) -> str:
        file = self.directory / "server.log"
        return file.read_text(errors="replace") if file.exists() else ""

    @property
    def directory_id(self) -> bytes:
        lines = (self.data / "meta.properties").read_text().split()
        return uuid_from_str(next(line.partition("=")[2] for line in lines if line.startswith("directory.id=")))

    def write_properties(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.file.write_text("".join(f"{name}={value}\n" for name, value in self.properties.items()))

    def format(self, *options: str) -> None:
        self.write_properties()
        command = [
            sys.executable,
            "-m",
            "ottla.cli.shims",
            "kafka-storage",
            "format",
            "-t",
            CLUSTER_ID,
            "-c",
            str(self.file),
        ]
        done = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        """Start the node without waiting until it is ready: `wait` does that."""
        self.write_properties()
        (self.directory / "server.log").unlink(missing_ok=True)
        with (self.directory / "server.log").open("wb") as output:
            command = [sys.executable, "-m", "ottla", "start", str(self.file)]
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)

    @property
    def is_ready(self) -> bool:
        return STARTED in self.log

    def wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self.is_ready:
            assert self.process is not None and self.process.poll() is None, f"node {self.id} ended: {self.log[-2000:]}"
            assert time.monotonic() < deadline, f"node {self.id} is not ready: {self.log[-2000:]}"
            time.sleep(0.02)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@dataclass
class Roles:
    """A cluster of controllers with the ids 1, 2, ... and of brokers with the ids from 11 on."""

    controllers: dict[int, Process] = field(default_factory=dict)
    brokers: dict[int, Process] = field(default_factory=dict)

    @property
    def all(self) -> list[Process]:
        return [*self.controllers.values(), *self.brokers.values()]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{each.port}" for each in self.brokers.values())

    def start(self, *nodes: Process) -> None:
        for node in nodes:
            node.start()
        for node in nodes:
            node.wait()

    def quorum(self) -> PartitionDataResponse:
        """Return a broker's answer to DescribeQuorum, with retries: the request may reach a controller that has just lost the
        others.
        """
        described: list[PartitionDataResponse] = []

        def ask() -> bool:
            with Wire(self.a_broker.port) as wire:
                described[:] = [topic.partitions[0] for topic in wire.request(DESCRIBE_QUORUM).topics]
            return bool(described) and described[0].error_code == 0

        eventually(ask, "the quorum to have a leader")
        return described[0]

    @property
    def a_broker(self) -> Process:
        return next(each for each in self.brokers.values() if each.process is not None and each.process.poll() is None)

    def voters(self) -> list[int]:
        return sorted(each.replica_id for each in self.quorum().current_voters)

    def wait_observer(self, node_id: int) -> None:
        def is_there() -> bool:
            return any(each.replica_id == node_id for each in self.quorum().observers)

        eventually(is_there, f"node {node_id} to be an observer")


@contextmanager
def separate_roles(
    directory: Path, controllers: int = 3, brokers: int = 2, *, dynamic: bool = False, **properties: str
) -> Iterator[Roles]:
    """Yield a cluster that is planned, but not started; it is ended in any case. `properties`, with underscores for dots, are
    for every node.
    """
    roles = Roles()
    ports = free_ports(controllers + brokers)
    quorum = {node_id: ports[node_id - 1] for node_id in range(1, controllers + 1)}
    common = {
        "controller.listener.names": "CONTROLLER",
        "cluster.id": CLUSTER_ID,
        "ottla.format.empty.directories": "true",
        "group.initial.rebalance.delay.ms": "0",
        **{f"{topic}.replication.factor": str(min(3, brokers)) for topic in ("offsets.topic", "transaction.state.log")},
        **{name.replace("_", "."): value for name, value in properties.items()},
    }
    if dynamic:
        common["controller.quorum.bootstrap.servers"] = ",".join(f"{HOST}:{port}" for port in quorum.values())
    else:
        common["controller.quorum.voters"] = ",".join(f"{node_id}@{HOST}:{port}" for node_id, port in quorum.items())
    for node_id, port in quorum.items():
        own = {"process.roles": "controller", "listeners": f"CONTROLLER://{HOST}:{port}"}
        roles.controllers[node_id] = _process(directory, node_id, port, own | common)
    for node_id, port in enumerate(ports[controllers:], FIRST_BROKER):
        own = {"process.roles": "broker", "listeners": f"PLAINTEXT://{HOST}:{port}"}
        roles.brokers[node_id] = _process(directory, node_id, port, own | common)
    try:
        yield roles
    finally:
        for node in [*roles.brokers.values(), *roles.controllers.values()]:
            node.stop()


def _process(directory: Path, node_id: int, port: int, properties: dict[str, str]) -> Process:
    home = directory / f"node-{node_id}"
    return Process(node_id, port, home, {"node.id": str(node_id), "log.dirs": str(home / "data"), **properties})
