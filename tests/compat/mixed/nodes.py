"""A cluster whose nodes are processes of Ottla or of Apache Kafka, each named by its kind; a node's directory may change its kind.

with Mixed(directory, voters=[1]) as mixed:
    mixed.add(OTTLA, 1, "controller").start()
    mixed.add(KAFKA, 2, "broker").start()
    mixed.wait_brokers(2)
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from confluent_kafka import KafkaException

from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.testing.connection import ClusterConnection
from tests.chaos.network import Network
from tests.ports import free_ports
from tools.apache_kafka import OLDEST, TOOLS, VERSION, java_command, run_tool

#: The name of a kind of Apache Kafka may have a release after a hyphen.
OTTLA, KAFKA, KAFKA_OLDEST = "ottla", "kafka", f"kafka-{OLDEST}"
HOST = "127.0.0.1"
#: Nodes 1 to 9 listen at the first port plus their id, their controllers ten ports above, Ottla's metrics twenty, and listeners
#: for logins thirty.
CONTROLLER_STEP, ADMIN_STEP, LOGIN_STEP, PORTS = 10, 20, 30, 40
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
JVM = "-Xmx512m -Xms64m -XX:+UseSerialGC"
#: The limit of a wait on a busy machine. Each wait ends as soon as its condition holds.
WAIT_SECONDS_MAX = 120
STOP_SECONDS_MAX = 60
TOOL_SECONDS_MAX = 120
POLL_SECONDS = 0.1
METADATA = "__cluster_metadata-0"
#: Features that Kafka's nodes could not read are neither advertised nor formatted.
RELEASE = {"ottla.advertised.release": "4.3.1"}

Found = TypeVar("Found")


class NotSo(Exception):
    """A step did not reach the state for which it waits."""


def until(what: str, check: Callable[[], Found], seconds: float = WAIT_SECONDS_MAX) -> Found:
    """Return what `check` finds, as soon as it finds something."""
    deadline, last = time.monotonic() + seconds, None
    while time.monotonic() < deadline:
        try:
            found = check()
            if found:
                return found
            last = found
        except (OSError, KafkaException) as error:
            last = error
        time.sleep(POLL_SECONDS)
    raise NotSo(f"{what}: not within {seconds:.0f} s, but {last!r}")


def tool(name: str, *args: object) -> str:
    """Return the output of one of Apache Kafka's tools."""
    done = run_tool(name, *map(str, args), timeout_s=TOOL_SECONDS_MAX)
    return done.stdout + done.stderr


def is_kafka(kind: str) -> bool:
    return kind.startswith(KAFKA)


class Node:
    """A node of the cluster, with its process while it runs."""

    def __init__(self, mixed: Mixed, kind: str, node_id: int, roles: str, own: dict[str, str]) -> None:
        self.mixed, self.kind, self.id, self.roles, self.own = mixed, kind, node_id, roles, own
        self.dir = mixed.directory / f"node{node_id}"
        self.properties = mixed.directory / f"node{node_id}.properties"
        self.port, self.controller_port, self.admin_port = (
            mixed.base_port + step + node_id for step in (0, CONTROLLER_STEP, ADMIN_STEP)
        )
        #: The subcommand of `ottla` with which Ottla starts.
        self.command: tuple[str, ...] = ("start", str(self.properties))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def login_bootstrap(self) -> str:
        """The address of the listener for SCRAM, if the node has that listener."""
        return f"{self.mixed.host(self.id)}:{self.mixed.base_port + LOGIN_STEP + self.id}"

    @property
    def release(self) -> str:
        """The release of Apache Kafka that the node runs."""
        return self.kind.partition("-")[2] or VERSION

    @property
    def bootstrap(self) -> str:
        return f"{self.mixed.host(self.id)}:{self.port}"

    @property
    def controller_address(self) -> str:
        return f"{self.mixed.host(self.id)}:{self.controller_port}"

    @property
    def log(self) -> Path:
        return self.mixed.directory / f"node{self.id}-{self.kind}.log"

    @property
    def metadata_dir(self) -> Path:
        return self.dir / METADATA

    def _write_properties(self) -> None:
        listeners = []
        if "broker" in self.roles:
            listeners.append(f"PLAINTEXT://{self.bootstrap}")
        if "controller" in self.roles:
            listeners.append(f"CONTROLLER://{self.controller_address}")
        voters = ",".join(
            f"{voter}@{self.mixed.host(voter)}:{self.mixed.base_port + CONTROLLER_STEP + voter}"
            for voter in self.mixed.voters
        )
        values = {
            "process.roles": self.roles,
            "node.id": str(self.id),
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.dir),
            **({"controller.quorum.voters": voters} if voters else {}),
            **({"ottla.metrics.port": str(self.admin_port), **self.mixed.release} if self.kind == OTTLA else {}),
            **self.mixed.properties,
            **self.own,
        }
        if "broker" in self.roles:
            values.setdefault("inter.broker.listener.name", "PLAINTEXT")
        self.properties.write_text("".join(f"{name}={value}\n" for name, value in values.items()))

    def format(self, *words: str) -> Node:
        """Format the directories by the storage tool of the node's own kind."""
        self._write_properties()
        arguments = ["format", "-t", CLUSTER_ID, "-c", str(self.properties), *words]
        if is_kafka(self.kind):
            done = run_tool("kafka-storage", *arguments, timeout_s=TOOL_SECONDS_MAX, version=self.release)
        else:
            shim = [*self.mixed.pythons[self.kind], "-m", "ottla.cli.shims", "kafka-storage", *arguments]
            done = subprocess.run(shim, capture_output=True, text=True, timeout=TOOL_SECONDS_MAX)
        if done.returncode:
            raise NotSo(f"format of {self.kind} {self.id}: {done.stdout}{done.stderr}")
        return self

    def start(self) -> Node:
        self._write_properties()
        if not (self.dir / "meta.properties").exists():
            self.format()
        if is_kafka(self.kind):
            command = java_command(
                TOOLS["kafka-server-start"],
                str(self.properties),
                jvm=self.mixed.jvm,
                version=self.release,
                extra_classpath=self.mixed.extra_classpath,
            )
        else:
            command = [*self.mixed.pythons[self.kind], "-m", "ottla", *self.command]
        if self.mixed.network is not None:
            command = [*self.mixed.network.inside(self.id), *command]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.mixed.directory
            )
        return self

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        if self.is_running:
            assert self._process is not None
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """Stop the node in order."""
        assert self._process is not None and self.is_running, f"{self.kind} {self.id} has ended: {self.log}"
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise NotSo(f"{self.kind} {self.id} did not stop within {STOP_SECONDS_MAX} s: {self.log}") from None

    def become(self, kind: str) -> Node:
        """Let the other kind go on with the directory."""
        assert not self.is_running
        self.kind = kind
        return self

    def quorum_state(self) -> tuple[int, int] | None:
        """Return the epoch and the leader by the file that both kinds keep; -1 stands for no leader."""
        try:
            found = json.loads((self.metadata_dir / "quorum-state").read_text())
        except (OSError, ValueError):
            return None
        return found["leaderEpoch"], found["leaderId"]


class Mixed:
    """A cluster, and what its brokers report about it."""

    def __init__(
        self, directory: Path, voters: Sequence[int] = (), network: Network | None = None, **properties: object
    ) -> None:
        """Property names are written with underscores in place of dots. With a network each node is in its own namespace, else
        on loopback.
        """
        self.directory, self.voters, self.network = directory, voters, network
        self.base_port = free_ports(PORTS)[0]
        self.nodes: dict[int, Node] = {}
        #: The interpreter that has Ottla, for each kind that is not Apache Kafka. A kind may be an older version of Ottla.
        self.pythons = {OTTLA: [sys.executable]}
        self.release = RELEASE
        #: The options of Apache Kafka's Java, and the address of nodes that have no network.
        self.jvm, self.loopback = JVM, HOST
        #: The classpath of what Apache Kafka needs besides its own.
        self.extra_classpath = ""
        self.properties = {
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "4",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            **_dotted(properties),
        }
        directory.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Mixed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self.nodes.values():
            node.kill()

    def add(self, kind: str, node_id: int, roles: str, **own: object) -> Node:
        node = self.nodes[node_id] = Node(self, kind, node_id, roles, _dotted(own))
        return node

    def host(self, node_id: int) -> str:
        return self.loopback if self.network is None else self.network.address(node_id)

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.serving())

    def note(self, what: str) -> None:
        """Note what is done to the nodes and when, beside their logs."""
        with (self.directory / "accidents.log").open("a") as log:
            log.write(f"{time.strftime('%H:%M:%S')} {what}\n")

    def serving(self) -> list[Node]:
        return [node for node in self.nodes.values() if "broker" in node.roles and node.is_running]

    # -- What a broker says --------------------------------------------------------------------------------------------

    def request(self, request: Any, api_key: ApiKey, version: int, node: Node | None = None) -> Any:
        """Send a request to one node, or to the first that responds."""
        lost: OSError = ConnectionError("no broker runs")
        for each in [node] if node is not None else self.serving():
            try:
                with ClusterConnection(self.host(each.id), each.port, None) as connection:
                    return connection.request(request, api_key, version)
            except OSError as error:
                lost = error
        raise lost

    def metadata(self, topic: str | None = None, node: Node | None = None) -> MetadataResponse:
        topics = [] if topic is None else [MetadataRequestTopic(name=topic)]
        found: MetadataResponse = self.request(
            MetadataRequest(topics=topics, allow_auto_topic_creation=False), ApiKey.METADATA, 12, node
        )
        return found

    def wait_brokers(self, *node_ids: int) -> None:
        """Wait until each of these brokers has all of them unfenced in its metadata."""

        def known() -> bool:
            seen = [sorted(each.node_id for each in self.metadata(node=self.nodes[i]).brokers) for i in node_ids]
            return all(ids == sorted(node_ids) for ids in seen)

        until(f"brokers {node_ids}", known)

    def partitions(self, topic: str, node: Node | None = None) -> list[tuple[int, list[int]]]:
        """Return leader and ISR of each partition, as this node or the first that responds knows them."""
        found = self.metadata(topic, node).topics[0]
        return [(each.leader_id, sorted(each.isr_nodes)) for each in found.partitions]

    def wait_isr(
        self,
        topic: str,
        isr: Iterable[int],
        leader: int | None = None,
        seconds: float = WAIT_SECONDS_MAX,
        node: Node | None = None,
    ) -> None:
        wanted, seen = sorted(isr), []

        def reached() -> bool:
            seen[:] = self.partitions(topic, node)
            return bool(seen) and all(
                found == wanted and (led == leader if leader is not None else led in wanted) for led, found in seen
            )

        try:
            until(f"{topic} with ISR {wanted}, leader {leader}", reached, seconds)
        except NotSo as error:
            raise NotSo(f"{error}; {seen[:3]}") from None

    # -- What a user does ----------------------------------------------------------------------------------------------

    def create(self, topic: str, assignment: Sequence[Sequence[int]], **configs: object) -> None:
        """Create the topic, and repeat the request until a controller has made it."""
        assignments = [CreatableReplicaAssignment(index, list(replicas)) for index, replicas in enumerate(assignment)]
        entries = [CreatableTopicConfig(name, value) for name, value in _dotted(configs).items()]
        request = CreateTopicsRequest([CreatableTopic(topic, -1, -1, assignments, entries)], timeout_ms=4_000)

        def made() -> bool:
            (answer,) = self.request(request, ApiKey.CREATE_TOPICS, 7).topics
            if answer.error_code in (ErrorCode.INVALID_REPLICA_ASSIGNMENT, ErrorCode.INVALID_CONFIG):
                raise NotSo(f"{topic}: {answer.error_message}")
            return answer.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)

        until(f"topic {topic} is created", made)

    # -- The quorum ----------------------------------------------------------------------------------------------------

    def voting(self) -> list[Node]:
        return [node for node in self.nodes.values() if "controller" in node.roles and node.is_running]

    def wait_leader(self, after_epoch: int = 0) -> Node:
        """Wait for one leader that every running controller names, in a later epoch."""

        def agreed() -> Node | None:
            running = {node.id: node for node in self.voting()}
            views = {node.quorum_state() for node in running.values()}
            view = views.pop() if len(views) == 1 else None
            return running.get(view[1]) if view is not None and view[0] > after_epoch else None

        found = until("one leader", agreed)
        assert found is not None
        return found

    def epoch(self) -> int:
        return max(state[0] for node in self.voting() if (state := node.quorum_state()) is not None)


def _dotted(properties: dict[str, object]) -> dict[str, str]:
    return {name.replace("_", "."): str(value) for name, value in properties.items()}
