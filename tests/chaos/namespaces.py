"""Three nodes of Ottla in network namespaces of their own, with cuts between any two of them; a subclass may have others beside them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from tests.chaos.network import Network
from tests.chaos.roles import quorum_leader

ROOT = Path(__file__).parents[2]
PORT, CONTROLLER_PORT = 9092, 9093
READY = "Kafka Server started"
READY_SECONDS_MAX = 60
FOUND_SECONDS_MAX = 60


class NamespaceCluster(Network):
    """A cluster in network namespaces: within `with NamespaceCluster(directory) as cluster` the calling thread is in the
    clients' namespace.
    """

    cluster_id = "chaos-in-namespaces-00"
    broker_ids = (1, 2, 3)
    #: Ids of controllers that are no brokers; without any, each node is both.
    controller_ids: tuple[int, ...] = ()

    def __init__(self, directory: Path, **properties: str) -> None:
        super().__init__((*self.broker_ids, *self.controller_ids))
        self._directory = directory
        self._own = {name.replace("_", "."): value for name, value in properties.items()}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    # -- Facts -------------------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{self.address(node_id)}:{PORT}" for node_id in self.broker_ids)

    def only(self, node_id: int) -> str:
        """Return the bootstrap servers of a client that knows this one node."""
        return f"{self.address(node_id)}:{PORT}"

    def log(self, node_id: int) -> str:
        return self._log_file(node_id).read_text(errors="replace")

    def leader_and_isr(self, topic: str, asked: int, partition: int = 0) -> tuple[int, list[int]]:
        """Return the leader and the ISR as one node knows them, or (-1, []) while it does not answer."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:
            metadata = AdminClient({"bootstrap.servers": self.only(asked), "log_level": 0}).list_topics(topic, 5)
        except KafkaException:
            return -1, []
        found = metadata.topics[topic].partitions.get(partition)
        return (found.leader, sorted(found.isrs)) if found is not None else (-1, [])

    def leader(self, topic: str, asked: int, without: int = -1) -> int:
        """Return the leader once there is one other than `without`."""
        deadline = time.monotonic() + FOUND_SECONDS_MAX
        while (leader := self.leader_and_isr(topic, asked)[0]) in (-1, without):
            assert time.monotonic() < deadline, f"node {asked} knows no (other) leader of {topic}"
            time.sleep(0.1)
        return leader

    def wait_isr(self, topic: str, partitions: int) -> None:
        """Wait until all nodes agree that all replicas are in sync."""
        deadline = time.monotonic() + FOUND_SECONDS_MAX
        whole = list(self.broker_ids)
        for node_id in self.broker_ids:
            for partition in range(partitions):
                while (seen := self.leader_and_isr(topic, node_id, partition))[1] != whole:
                    assert time.monotonic() < deadline, f"{topic}-{partition} is {seen} for node {node_id}"
                    time.sleep(0.1)

    def controller(self, *asked: int, without: int = -1) -> int:
        """Return the active controller that one of these nodes names, once it is another than `without`."""
        deadline = time.monotonic() + FOUND_SECONDS_MAX
        while True:
            for node_id in asked or self.broker_ids:
                if (found := quorum_leader(self.address(node_id), PORT)) not in (-1, without):
                    return found
            assert time.monotonic() < deadline, "the quorum has no (other) leader"
            time.sleep(0.05)

    # -- Life --------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            for node_id in self.node_ids:
                self._start(node_id)
            deadline = time.monotonic() + READY_SECONDS_MAX
            for node_id in self.node_ids:
                while not self._is_ready(node_id):
                    assert self._processes[node_id].poll() is None, f"node {node_id} ended: {self.log(node_id)[-2000:]}"
                    assert time.monotonic() < deadline, f"node {node_id} is not ready: {self.log(node_id)[-2000:]}"
                    time.sleep(0.02)
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        for process in self._processes.values():
            process.send_signal(signal.SIGKILL)
            process.wait()
        super().close()

    def _is_ready(self, node_id: int) -> bool:
        return READY in self.log(node_id)

    def _start(self, node_id: int) -> None:
        folder = self._directory / f"node-{node_id}"
        folder.mkdir(exist_ok=True)
        command = [*self.inside(node_id), *self._command(node_id, folder)]
        with self._log_file(node_id).open("ab") as output:
            environment = os.environ | {"PYTHONPATH": str(ROOT)}
            self._processes[node_id] = subprocess.Popen(command, stdout=output, stderr=output, env=environment)

    def _command(self, node_id: int, folder: Path) -> list[str]:
        """Return the command that starts the node."""
        properties = {"ottla.format.empty.directories": "true", **self._properties(node_id, folder)}
        words = [f"{name}={value}" for name, value in properties.items()]
        return [sys.executable, "-P", "-m", "ottla", "start", *(w for word in words for w in ("--override", word))]

    def _properties(self, node_id: int, folder: Path) -> dict[str, str]:
        own = self.address(node_id)
        listeners = {"broker": f"PLAINTEXT://{own}:{PORT}", "controller": f"CONTROLLER://{own}:{CONTROLLER_PORT}"}
        roles = list(listeners)
        if self.controller_ids:
            roles = ["controller" if node_id in self.controller_ids else "broker"]
        voters = self.controller_ids or self.broker_ids
        return {
            "process.roles": ",".join(roles),
            "node.id": str(node_id),
            "cluster.id": self.cluster_id,
            "listeners": ",".join(listeners[role] for role in roles),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": ",".join(f"{n}@{self.address(n)}:{CONTROLLER_PORT}" for n in voters),
            "log.dirs": str(folder / "data"),
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            "offsets.topic.replication.factor": "3",
            "offsets.topic.num.partitions": "4",
            "group.initial.rebalance.delay.ms": "0",
            **self._own,
        }

    def _log_file(self, node_id: int) -> Path:
        return self._directory / f"node-{node_id}.log"
