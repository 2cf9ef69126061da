"""The two servers under test, behind one shape: bootstrap, pids, kill and start of one node, stop."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import rsa

from benchmarks import raw
from ottla.local.certificates import Authority
from ottla.testing import Cluster
from ottla.testing.errors import NotRunning
from tools.apache_kafka import START_SCRIPT_JVM, ApacheKafka

KAFKA_PORT = int(os.environ.get("BENCH_KAFKA_PORT", "31092"))
#: The port of a single node, whose listener with TLS is known beforehand; three nodes take free ports.
OTTLA_PORT = int(os.environ.get("BENCH_OTTLA_PORT", "30092"))
NULL_PORT = int(os.environ.get("BENCH_NULL_PORT", "29092"))
#: The settings of `ottla dev` for three nodes: an automatically created topic has three replicas, two of which must be in sync.
REPLICATED = {"default.replication.factor": "3", "min.insync.replicas": "2"}
START_SECONDS_MAX = 90


@dataclass
class Server:
    """Running nodes; `stop` ends them and removes their data."""

    name: str
    bootstrap: str
    #: The listener with TLS of each node. Three nodes have one only on request.
    listeners: list[TlsListener] = field(repr=False)
    #: The directory below which all nodes keep their data.
    directory: Path
    pids: list[int]
    stop: Callable[[], None] = field(repr=False)
    #: Kills a node (-9), unless it has ended, and starts it again, without waiting until it is ready.
    restart: Callable[[int], None] = field(repr=False)

    @property
    def tls(self) -> TlsListener:
        return self.listeners[0]


@dataclass(frozen=True)
class TlsListener:
    """The settings of a node of either server that serves TLS beside plaintext, with a certificate of RSA-2048."""

    port: int
    directory: tempfile.TemporaryDirectory[str] = field(default_factory=tempfile.TemporaryDirectory)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def ca_file(self) -> str:
        return os.path.join(self.directory.name, "ca.pem")

    def properties(self, port: int, controller_port: int) -> dict[str, str]:
        authority = Authority.create("benchmarks")
        node = authority.issue("node", ["127.0.0.1"], key=rsa.generate_private_key(65537, 2048))
        file = os.path.join(self.directory.name, "node.pem")
        for path, text in ((file, node.key_pem + node.chain_pem), (self.ca_file, authority.pem)):
            with open(path, "w") as out:
                out.write(text)
        clients = f"PLAINTEXT://127.0.0.1:{port},SSL://{self.bootstrap}"
        return {
            "listeners": f"{clients},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": clients,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": file,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
        }


class NullServer:
    """A process that takes a load in place of a server, and listens at NULL_PORT."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command, self.port = command, NULL_PORT

    @classmethod
    def of(cls, module: str) -> NullServer:
        """Return the null server of the module benchmarks/null_*.py."""
        return cls([sys.executable, "-m", f"benchmarks.{module}", str(NULL_PORT)])

    def __enter__(self) -> NullServer:
        self._process = subprocess.Popen(self._command)
        self.pid = self._process.pid
        until = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return self
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.02)

    def __exit__(self, *exc_info: object) -> None:
        self._process.terminate()
        self._process.wait()


@contextmanager
def spinning(count: int, settle: Callable[[int], object]) -> Iterator[None]:
    """Run processes that do nothing but take processors. `settle` gives the process of an id its priority."""
    processes = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(count)]
    try:
        for each in processes:
            settle(each.pid)
        yield
    finally:
        for each in processes:
            each.kill()
            each.wait()


def start_ottla(nodes: int = 1, *, tls: bool | None = None, properties: Mapping[str, str] | None = None) -> Server:
    """Start Ottla. A single node serves TLS as well, three nodes do with `tls`."""
    tls = nodes == 1 if tls is None else tls
    listeners = [TlsListener(OTTLA_PORT + 50 + i) for i in range(nodes)]
    ports = [(OTTLA_PORT + i, OTTLA_PORT + 100 + i) for i in range(nodes)]
    own = {i + 1: each.properties(*ports[i]) for i, each in enumerate(listeners)} if tls else None
    given = {name.replace(".", "_"): value for name, value in (properties or {}).items()}
    cluster = Cluster(nodes, base_port=OTTLA_PORT if tls else 0, per_node=own, spoilable=False, **given)
    cluster.__enter__()

    def restart(index: int) -> None:
        with suppress(NotRunning):
            cluster.kill(index + 1)
        cluster.start(index + 1)
        server.pids[index] = cluster.pid(index + 1)

    pids = [cluster.pid(i + 1) for i in range(nodes)]
    directory = Path(cluster.directory)
    server = Server("ottla", cluster.bootstrap, listeners, directory, pids, cluster.close, restart)
    return server


def start_kafka(nodes: int = 1, *, tls: bool | None = None, properties: Mapping[str, str] | None = None) -> Server:
    """Start Kafka. A single node serves TLS as well, three nodes do with `tls`."""
    tls = nodes == 1 if tls is None else tls
    listeners = [TlsListener(KAFKA_PORT + 150 + i) for i in range(nodes)]
    ports = [(KAFKA_PORT + i, KAFKA_PORT + 100 + i) for i in range(nodes)]
    own = [each.properties(*ports[i]) for i, each in enumerate(listeners)] if tls else []
    kafka = ApacheKafka(KAFKA_PORT, nodes, properties=dict(properties or {}), jvm=START_SCRIPT_JVM, per_node=own)
    kafka.__enter__()  # stops the started nodes if one of them fails to start

    def restart(index: int) -> None:
        killed = kafka.processes[index]
        kafka.kill(index)
        killed.wait()
        log = (kafka.data / f"node{index + 1}.log").open("ab")
        kafka.processes[index] = subprocess.Popen(
            killed.args, cwd=kafka.data, stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
        server.pids[index] = kafka.processes[index].pid

    server = Server("kafka", kafka.bootstrap, listeners, kafka.data, kafka.pids, kafka.stop, restart)
    return server


def ottla_first_ack_seconds(nodes: int = 1) -> float:
    """Return the seconds from starting the processes on empty directories, which they format themselves, to the first
    acknowledged Produce.
    """
    cluster = Cluster(nodes, spoilable=False)
    addresses = [("127.0.0.1", node.port) for node in cluster.nodes.values()]
    starting = threading.Thread(target=cluster.start, args=tuple(cluster.nodes))
    begin = time.monotonic()
    starting.start()
    try:
        return raw.first_ack(addresses, "first", begin + START_SECONDS_MAX) - begin
    finally:
        starting.join()
        cluster.close()


def kafka_first_ack_seconds(nodes: int = 1) -> tuple[float, float]:
    """Return for Apache Kafka the seconds to format, and those from starting the processes to the first acknowledged
    Produce.
    """
    kafka = ApacheKafka(KAFKA_PORT + 50, nodes, properties=REPLICATED if nodes == 3 else None, jvm=START_SCRIPT_JVM)
    kafka._wait_until_ready = lambda begin: None  # the Produce below measures this instead
    try:
        kafka.start()
        begin = time.monotonic()
        addresses = [("127.0.0.1", KAFKA_PORT + 50 + i) for i in range(nodes)]
        return kafka.format_seconds, raw.first_ack(addresses, "first", begin + START_SECONDS_MAX) - begin
    finally:
        kafka.stop()
        shutil.rmtree(kafka.data, ignore_errors=True)
