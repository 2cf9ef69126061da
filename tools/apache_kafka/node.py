"""One or three nodes of Apache Kafka on loopback, combined mode, with the defaults of a fresh cluster."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from ottla.protocol.api import ApiKey
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.testing.connection import ClusterConnection
from tools.apache_kafka.jars import VERSION, OracleUnavailable
from tools.apache_kafka.programs import TOOLS, java_command, run_tool

START_SECONDS_MAX = 90
STOP_SECONDS_MAX = 30
POLL_SECONDS = 0.05
METADATA_VERSION = 12
SINGLE_NODE = {  # one broker cannot hold the three replicas that these ask for by default
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


class ApacheKafka:
    """A running cluster: `with ApacheKafka(base_port=31092) as kafka: kafka.bootstrap`.

    A data directory given by the caller is kept (and may be one that Ottla wrote); otherwise it is temporary.
    """

    def __init__(
        self,
        base_port: int,
        nodes: int = 1,
        data: Path | None = None,
        properties: dict[str, str] | None = None,
        jvm: str = "-Xmx1G -Xms256m -XX:+UseSerialGC",
        cluster_id: str | None = None,
        first_id: int = 1,
        quick: bool = False,
        version: str = VERSION,
        per_node: Sequence[Mapping[str, str]] = (),
    ) -> None:
        self.base_port, self.nodes, self.jvm, self.first_id, self.quick = base_port, nodes, jvm, first_id, quick
        self.properties = properties or {}
        self.per_node = per_node
        self.cluster_id = cluster_id
        self.version = version
        self._temporary = data is None
        self.data = data or Path(tempfile.mkdtemp(prefix="apache-kafka-"))
        self.bootstrap = ",".join(f"127.0.0.1:{base_port + i}" for i in range(nodes))
        self.processes: list[subprocess.Popen[bytes]] = []
        self.format_seconds = self.start_seconds = 0.0

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self.processes]

    def log_dir(self, index: int = 0) -> Path:
        return self.data / f"node{index + 1}"

    def __enter__(self) -> ApacheKafka:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Format the directories that are not formatted, start every node, and wait until all of them answer."""
        self.data.mkdir(parents=True, exist_ok=True)
        begin = time.monotonic()
        if self.cluster_id is None:
            self.cluster_id = run_tool("kafka-storage", "random-uuid", version=self.version).stdout.split()[-1]
        files = [self._write_properties(i) for i in range(self.nodes)]
        for i, file in enumerate(files):
            if not (self.log_dir(i) / "meta.properties").exists():
                done = run_tool("kafka-storage", "format", "-t", self.cluster_id, "-c", str(file), version=self.version)
                if done.returncode != 0:
                    raise OracleUnavailable(f"format failed: {done.stdout}{done.stderr}")
        self.format_seconds = time.monotonic() - begin
        begin = time.monotonic()
        for i, file in enumerate(files):
            log = (self.data / f"node{i + 1}.log").open("wb")
            command = java_command(
                TOOLS["kafka-server-start"], str(file), jvm=self.jvm, quick=self.quick, version=self.version
            )
            self.processes.append(
                subprocess.Popen(command, cwd=self.data, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
            )
        self._wait_until_ready(begin)

    def kill(self, index: int, number: int = signal.SIGKILL) -> None:
        self.processes[index].send_signal(number)

    def stop(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()
        if self._temporary:
            shutil.rmtree(self.data, ignore_errors=True)

    def _wait_until_ready(self, begin: float) -> None:
        while True:
            for i, process in enumerate(self.processes):
                if process.poll() is not None:
                    tail = (self.data / f"node{i + 1}.log").read_text(errors="replace")[-800:]
                    raise OracleUnavailable(f"node {i + 1} ended: {tail}")
            if all(self._brokers_known(index) == self.nodes for index in range(self.nodes)):
                self.start_seconds = time.monotonic() - begin
                return
            if time.monotonic() - begin > START_SECONDS_MAX:
                raise OracleUnavailable(f"no answer within {START_SECONDS_MAX} s")
            time.sleep(POLL_SECONDS)

    def _brokers_known(self, index: int) -> int:
        """Return the number of unfenced brokers in the node's metadata; 0 while it does not listen."""
        try:
            with ClusterConnection("127.0.0.1", self.base_port + index, None) as connection:
                return len(connection.request(MetadataRequest(topics=[]), ApiKey.METADATA, METADATA_VERSION).brokers)
        except OSError:
            return 0

    def _write_properties(self, index: int) -> Path:
        ids = range(self.first_id, self.first_id + self.nodes)
        broker, controller = self.base_port + index, self.base_port + 100 + index
        voters = ",".join(f"{node}@127.0.0.1:{self.base_port + 100 + i}" for i, node in enumerate(ids))
        values = {
            "process.roles": "broker,controller",
            "node.id": str(self.first_id + index),
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{broker}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self.log_dir(index)),
            "group.initial.rebalance.delay.ms": "0",
            **(SINGLE_NODE if self.nodes == 1 else {}),
            **self.properties,
            **(self.per_node[index] if self.per_node else {}),
        }
        file = self.data / f"node{index + 1}.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
        return file
