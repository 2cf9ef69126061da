"""Brokers and controllers of one cluster, each a fork of this process in the namespace of its rack, and their own figures."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection
from typing import Any

from benchmarks.racks.network import RackNetwork
from benchmarks.usage import cpu_seconds, private_megabytes
from ottla.client.blocking import BlockingConnection, BlockingSecurity
from ottla.local import nodes as local_nodes
from ottla.local.directory import new_cluster_id
from ottla.local.nodes import LocalNode
from ottla.node.default_node import replication
from ottla.processes.children import fork
from ottla.processes.start import imported
from ottla.protocol.messages.describe_quorum import DescribeQuorumRequest, TopicDataRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.messages.shared_structs import PartitionIndex

CONTROLLERS = (901, 902, 903)
BROKER_PORT, CONTROLLER_PORT, ADMIN_PORT = 9000, 10_000, 11_000
METADATA_VERSION = 12
#: Where there are many brokers, controllers would have a machine of their own; here they have not even a core.
CONTROLLER_NICE = -10
#: The number of nodes that start at once: more would only wait for the processors.
AT_ONCE = 8
LOOK_SECONDS = 0.5
ADMIN_SECONDS_MAX = 20
STOP_SECONDS_MAX = 120
LONGEST_TURN = "ottla_event_loop_lag_ms_max "


@dataclass(frozen=True)
class Member:
    """A node of the cluster and the rack in which it is."""

    node: LocalNode
    rack: int

    @property
    def is_controller(self) -> bool:
        return self.node.id in CONTROLLERS


@dataclass(frozen=True)
class Known:
    """All partitions as one broker knows them, by topic and number: leader, replicas, and those in sync."""

    partitions: dict[tuple[str, int], tuple[int, list[int], list[int]]]

    def led_by(self, brokers: Iterable[int]) -> list[tuple[str, int]]:
        wanted = frozenset(brokers)
        return [place for place, (leader, _, _) in self.partitions.items() if leader in wanted]

    def out_of_sync(self) -> int:
        return sum(leader < 0 or len(isr) < len(replicas) for leader, replicas, isr in self.partitions.values())

    def replicas_on(self, broker: int) -> int:
        return sum(broker in replicas for _, replicas, _ in self.partitions.values())


class Fleet:
    """The nodes of the cluster, as a context manager: at its end all nodes are killed, and their files removed."""

    def __init__(self, network: RackNetwork, brokers: int, directory: str, properties: dict[str, str]) -> None:
        self.network, self.directory = network, directory
        self._racks = len(network.racks)
        self._brokers = brokers
        self._properties = properties
        self._cluster_id = new_cluster_id()
        self.members: dict[int, Member] = {}
        for number, controller in enumerate(CONTROLLERS):
            self.add(controller, 1 + number % self._racks)
        for broker in range(1, brokers + 1):
            self.add(broker, 1 + broker % self._racks)

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *failure: object) -> None:
        for member in self.members.values():
            if member.node.process is not None:
                member.node.process.kill()
        local_nodes.stop([member.node for member in self.members.values()])
        shutil.rmtree(self.directory, ignore_errors=True)

    def add(self, node_id: int, rack: int) -> None:
        """Add a node, which is not started yet."""
        broker, controller, admin = (base + node_id for base in (BROKER_PORT, CONTROLLER_PORT, ADMIN_PORT))
        self.members[node_id] = Member(
            LocalNode(node_id, broker, controller, admin, os.path.join(self.directory, str(node_id))), rack
        )

    # -- Processes ---------------------------------------------------------------------------------------------------

    def start(self, node_ids: Sequence[int]) -> float:
        """Start the nodes, some at a time; return the seconds until all of them serve."""
        began, waiting = time.monotonic(), list(node_ids)
        while waiting:
            some, waiting = waiting[:AT_ONCE], waiting[AT_ONCE:]
            for node_id in some:
                member = self.members[node_id]
                with self.network.inside(member.rack):
                    local_nodes.start(member.node, self._properties_of(member), partial(fork, imported))
                if member.is_controller:
                    os.setpriority(os.PRIO_PROCESS, self.pids([node_id])[0], CONTROLLER_NICE)
            failure = local_nodes.wait_ready([self.members[node_id].node for node_id in some])
            if failure is not None:
                raise RuntimeError(failure)
        return time.monotonic() - began

    def start_first(self) -> float:
        """Start all controllers at once, because none of them serves without a second one."""
        return self.start(CONTROLLERS) + self.start(self.brokers)

    def stop(self, node_ids: Sequence[int]) -> None:
        """Stop the nodes by a controlled shutdown, which hands over their leaders first."""
        self._end(node_ids, signal.SIGTERM)

    def lose(self, node_id: int) -> None:
        """Kill the node, and remove its disk."""
        self._end([node_id], signal.SIGKILL)
        shutil.rmtree(self.members[node_id].node.dir)

    def _end(self, node_ids: Sequence[int], number: int) -> None:
        processes = [self.members[node_id].node.process for node_id in node_ids]
        for process in filter(None, processes):
            os.kill(process.pid, number)
        for process in filter(None, processes):
            process.wait(STOP_SECONDS_MAX)

    def _properties_of(self, member: Member) -> dict[str, str]:
        node, host = member.node, self.network.address(member.rack)
        listener = ("CONTROLLER", node.controller_port) if member.is_controller else ("PLAINTEXT", node.port)
        voters = [self.members[each] for each in CONTROLLERS]
        return {
            "process.roles": "controller" if member.is_controller else "broker",
            "node.id": str(node.id),
            "cluster.id": self._cluster_id,
            "listeners": f"{listener[0]}://{host}:{listener[1]}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": ",".join(
                f"{each.node.id}@{self.network.address(each.rack)}:{each.node.controller_port}" for each in voters
            ),
            "ottla.admin.listener": f"127.0.0.1:{node.admin_port}",
            "log.dirs": node.data_dir,
            "ottla.format.empty.directories": "true",
            "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
            **({} if member.is_controller else {"broker.rack": self.rack_name(member.rack)}),
            **replication(self._brokers),
            **self._properties,
        }

    # -- Facts -------------------------------------------------------------------------------------------------------

    @staticmethod
    def rack_name(rack: int) -> str:
        return f"rack-{rack}"

    @property
    def running(self) -> list[int]:
        return [node_id for node_id, member in self.members.items() if member.node.is_running]

    @property
    def brokers(self) -> list[int]:
        return [node_id for node_id, member in self.members.items() if not member.is_controller]

    def of_rack(self, rack: int) -> list[int]:
        """Return the running brokers of the rack."""
        return [each for each in self.running if self.members[each].rack == rack and each not in CONTROLLERS]

    def bootstrap(self, rack: int) -> str:
        address = self.network.address(rack)
        return ",".join(f"{address}:{self.members[each].node.port}" for each in self.of_rack(rack)[:3])

    @contextmanager
    def connection(self, broker: int) -> Iterator[BlockingConnection]:
        """Open a connection from within the broker's rack.

        Raises:
            OSError: it cannot be reached.
        """
        member = self.members[broker]
        with self.network.inside(member.rack):
            found = BlockingConnection(self.network.address(member.rack), member.node.port, "racks", BlockingSecurity())
        try:
            yield found
        finally:
            found.close()

    def request(self, message: object, version: int, broker: int) -> Any:
        """Return the response of that broker.

        Raises:
            OSError: it does not respond.
        """
        with self.connection(broker) as connection:
            return connection.call(message, version)

    def active_controller(self, rack: int) -> int:
        """Return the active controller that a broker of that rack knows; -1 if it knows none."""
        asked = DescribeQuorumRequest([TopicDataRequest("__cluster_metadata", [PartitionIndex(0)])])
        try:
            (topic,) = self.request(asked, 0, self.of_rack(rack)[0]).topics
        except (OSError, ValueError):
            return -1
        return -1 if topic.partitions[0].error_code else int(topic.partitions[0].leader_id)

    def known(self, rack: int, names: Sequence[str] | None = None) -> Known:
        """Return the partitions of these topics, or of all that are not internal, as a broker of that rack knows them."""
        topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        asked = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        found: MetadataResponse = self.request(asked, METADATA_VERSION, self.of_rack(rack)[0])
        return Known(
            {
                (topic.name or "", each.partition_index): (each.leader_id, each.replica_nodes, each.isr_nodes)
                for topic in found.topics
                if not topic.is_internal
                for each in topic.partitions
            }
        )

    def pids(self, node_ids: Iterable[int]) -> list[int]:
        found = (self.members[node_id].node.process for node_id in node_ids)
        return [process.pid for process in found if process is not None]

    def cpu(self) -> dict[int, tuple[int, float]]:
        """Return the process id and the CPU seconds so far of each node."""
        pids = {node_id: self.pids([node_id])[0] for node_id in self.running}
        return {node_id: (pid, cpu_seconds([pid])) for node_id, pid in pids.items()}

    def memory(self) -> dict[int, float]:
        """Return the private megabytes of each node's process."""
        return {node_id: private_megabytes(self.pids([node_id])) for node_id in self.running}

    def longest_turns(self) -> dict[int, float]:
        """Return for each node the longest delay of its event loop in ms since the last call."""
        return {node_id: self._longest_turn(node_id) for node_id in self.running}

    def _longest_turn(self, node_id: int) -> float:
        member = self.members[node_id]
        with self.network.inside(member.rack):
            admin = HTTPConnection("127.0.0.1", member.node.admin_port, timeout=ADMIN_SECONDS_MAX)
            admin.request("GET", "/metrics")
            lines = admin.getresponse().read().decode().splitlines()
            admin.close()
        return max((float(line.split()[-1]) for line in lines if line.startswith(LONGEST_TURN)), default=0.0)

    def log_lines(self, words: str) -> Iterator[tuple[int, str]]:
        for node_id, member in self.members.items():
            if os.path.exists(member.node.log_file):
                with open(member.node.log_file, encoding="utf-8", errors="replace") as file:
                    yield from ((node_id, line.rstrip()) for line in file if words in line)


def wait_until(what: str, is_so: Callable[[], bool], seconds: float) -> float:
    """Wait until `is_so` returns True; return the seconds. An OSError counts as False. Raises TimeoutError after `seconds`."""
    began = time.monotonic()
    while True:
        try:
            if is_so():
                return time.monotonic() - began
        except OSError:
            pass
        if time.monotonic() - began > seconds:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(LOOK_SECONDS)
