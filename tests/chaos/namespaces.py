"""Three nodes in network namespaces of their own, a fourth namespace for the clients, and cuts between any two of them.

A cut is silent, as a broken cable is: what A sends to B is addressed to a network card that does not exist (an entry in A's
neighbour table), so nothing arrives, nothing is refused, and connections stay open. Each direction is cut by itself. Needs root.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

from tests.chaos.roles import quorum_leader
from tests.docker.namespace_harness import available

ROOT = Path(__file__).parents[2]
CLIENT = 0  # the number of the clients' namespace
UNUSED_ADDRESS = "02:00:00:00:00:99"
PORT, CONTROLLER_PORT = 9092, 9093
CLONE_NEWNET = 0x40000000
READY = "Kafka Server started"
READY_SECONDS_MAX = 60
FOUND_SECONDS_MAX = 60

SKIP_REASON = "needs root, iproute2 and network namespaces"

__all__ = ["CLIENT", "SKIP_REASON", "NamespaceCluster", "available"]


class NamespaceCluster:
    """`with NamespaceCluster(directory) as cluster`: the thread that does this is in the clients' namespace meanwhile."""

    def __init__(self, directory: Path, **properties: str) -> None:
        self.node_ids = (1, 2, 3)
        self._directory = directory
        self._prefix = f"ottd{os.getpid() % 100000}"
        self._own = {name.replace("_", "."): value for name, value in properties.items()}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._namespaces: list[str] = []
        self._cuts: set[tuple[int, int]] = set()
        self._home = -1

    # -- Facts -------------------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{self.address(node_id)}:{PORT}" for node_id in self.node_ids)

    @staticmethod
    def address(number: int) -> str:
        return f"10.78.0.{10 + number}"

    def only(self, node_id: int) -> str:
        """Return the bootstrap servers of a client that knows this one node."""
        return f"{self.address(node_id)}:{PORT}"

    def log(self, node_id: int) -> str:
        return self._log_file(node_id).read_text(errors="replace")

    def leader_and_isr(self, topic: str, asked: int, partition: int = 0) -> tuple[int, list[int]]:
        """Return leader and ISR as one node knows them, or (-1, []) while it does not answer."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:
            metadata = AdminClient({"bootstrap.servers": self.only(asked), "log_level": 0}).list_topics(topic, 5)
        except KafkaException:
            return -1, []
        found = metadata.topics[topic].partitions.get(partition)
        return (found.leader, sorted(found.isrs)) if found is not None else (-1, [])

    def leader(self, topic: str, asked: int, without: int = -1) -> int:
        """Once there is one, and another than `without`."""
        deadline = time.monotonic() + FOUND_SECONDS_MAX
        while (leader := self.leader_and_isr(topic, asked)[0]) in (-1, without):
            assert time.monotonic() < deadline, f"node {asked} knows no (other) leader of {topic}"
            time.sleep(0.1)
        return leader

    def wait_isr(self, topic: str, partitions: int) -> None:
        """Until all nodes agree that all replicas are in sync."""
        deadline = time.monotonic() + FOUND_SECONDS_MAX
        whole = list(self.node_ids)
        for node_id in self.node_ids:
            for partition in range(partitions):
                while (seen := self.leader_and_isr(topic, node_id, partition))[1] != whole:
                    assert time.monotonic() < deadline, f"{topic}-{partition} is {seen} for node {node_id}"
                    time.sleep(0.1)

    def controller(self, *asked: int, without: int = -1) -> int:
        """The active controller as one of these nodes says, once it is another than `without`."""
        deadline = time.monotonic() + FOUND_SECONDS_MAX
        while True:
            for node_id in asked or self.node_ids:
                if (found := quorum_leader(self.address(node_id), PORT)) not in (-1, without):
                    return found
            assert time.monotonic() < deadline, "the quorum has no (other) leader"
            time.sleep(0.05)

    # -- Cuts --------------------------------------------------------------------------------------------------------

    def cut(self, sender: int, receiver: int) -> None:
        """What `sender` sends to `receiver` is lost from now on."""
        self._ip("-n", self._namespace(sender), "neigh", "replace", self.address(receiver),
                 "lladdr", UNUSED_ADDRESS, "dev", "eth0", "nud", "permanent")  # fmt: skip
        self._cuts.add((sender, receiver))

    def isolate(self, node_id: int) -> None:
        """From the other nodes, both ways; clients still reach it."""
        for other in self.node_ids:
            if other != node_id:
                self.cut(node_id, other)
                self.cut(other, node_id)

    def heal(self) -> None:
        for sender, receiver in self._cuts:
            self._ip("-n", self._namespace(sender), "neigh", "del", self.address(receiver), "dev", "eth0")
        self._cuts.clear()

    # -- Life --------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self._lay_network()
            for node_id in self.node_ids:
                self._start(node_id)
            deadline = time.monotonic() + READY_SECONDS_MAX
            for node_id in self.node_ids:
                while READY not in self.log(node_id):
                    assert self._processes[node_id].poll() is None, f"node {node_id} ended: {self.log(node_id)[-2000:]}"
                    assert time.monotonic() < deadline, f"node {node_id} is not ready: {self.log(node_id)[-2000:]}"
                    time.sleep(0.02)
            self._home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
            with open(f"/run/netns/{self._namespace(CLIENT)}") as client:
                _enter(client.fileno())
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        if self._home >= 0:
            _enter(self._home)
            os.close(self._home)
            self._home = -1
        for process in self._processes.values():
            process.send_signal(signal.SIGKILL)
            process.wait()
        for namespace in self._namespaces:
            subprocess.run(["ip", "netns", "del", namespace], capture_output=True)

    def _start(self, node_id: int) -> None:
        own = self.address(node_id)
        folder = self._directory / f"node-{node_id}"
        folder.mkdir(exist_ok=True)
        properties = {
            "node.id": str(node_id),
            "cluster.id": "chaos-in-namespaces-00",
            "listeners": f"PLAINTEXT://{own}:{PORT},CONTROLLER://{own}:{CONTROLLER_PORT}",
            "controller.quorum.voters": ",".join(f"{n}@{self.address(n)}:{CONTROLLER_PORT}" for n in self.node_ids),
            "ottla.format.empty.directories": "true",
            "log.dirs": str(folder / "data"),
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            "offsets.topic.replication.factor": "3",
            "offsets.topic.num.partitions": "4",
            "group.initial.rebalance.delay.ms": "0",
            **self._own,
        }
        command = ["ip", "netns", "exec", self._namespace(node_id), sys.executable, "-P", "-m", "ottla", "start"]
        for name, value in properties.items():
            command += ["--override", f"{name}={value}"]
        with self._log_file(node_id).open("ab") as output:
            environment = os.environ | {"PYTHONPATH": str(ROOT)}
            self._processes[node_id] = subprocess.Popen(command, stdout=output, stderr=output, env=environment)

    def _log_file(self, node_id: int) -> Path:
        return self._directory / f"node-{node_id}.log"

    def _namespace(self, number: int) -> str:
        return f"{self._prefix}-{number}"

    def _lay_network(self) -> None:
        """A bridge in the clients' namespace, and a cable from it to each node."""
        client = self._namespace(CLIENT)
        for number in (CLIENT, *self.node_ids):
            self._ip("netns", "add", self._namespace(number))
            self._namespaces.append(self._namespace(number))
            self._ip("-n", self._namespace(number), "link", "set", "lo", "up")
        self._ip("-n", client, "link", "add", "eth0", "type", "bridge")
        self._ip("-n", client, "addr", "add", f"{self.address(CLIENT)}/24", "dev", "eth0")
        self._ip("-n", client, "link", "set", "eth0", "up")
        for node_id in self.node_ids:
            own, port = self._namespace(node_id), f"port{node_id}"
            self._ip("-n", own, "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", client)
            self._ip("-n", client, "link", "set", port, "master", "eth0", "up")
            self._ip("-n", own, "addr", "add", f"{self.address(node_id)}/24", "dev", "eth0")
            self._ip("-n", own, "link", "set", "eth0", "up")

    def _ip(self, *arguments: str) -> None:
        done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
        assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"


def _enter(namespace_fd: int) -> None:
    """For this thread, and those that it makes afterwards."""
    libc: Any = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace_fd, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")
