"""Three nodes with admin listeners, whose metrics are read while nodes are killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.ports import free_ports

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Node:
    id: int
    port: int
    controller_port: int
    admin_port: int
    process: subprocess.Popen[bytes] | None = None

    def scrape(self) -> str | None:
        return self.get("/metrics")

    def get(self, path: str) -> str | None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}{path}", timeout=30) as answer:
                return str(answer.read().decode())
        except (urllib.error.URLError, OSError):
            return None

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()


def properties(node: Node, nodes: list[Node], directory: Path) -> dict[str, str]:
    logs = str(directory / f"node-{node.id}")
    if node.id == 3:
        # A directory at this path cannot be made: the node starts with one of its two directories offline.
        logs += ",/dev/null/logs"
    return {
        "process.roles": "broker,controller",
        "node.id": str(node.id),
        "listeners": f"PLAINTEXT://127.0.0.1:{node.port},CONTROLLER://127.0.0.1:{node.controller_port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(f"{n.id}@127.0.0.1:{n.controller_port}" for n in nodes),
        "cluster.id": "4L6g3nShT-eMCtK--X86sw",
        "ottla.format.empty.directories": "true",
        "ottla.admin.listener": f"127.0.0.1:{node.admin_port}",
        "log.dirs": logs,
        "remote.log.storage.system.enable": "true",
        "ottla.tier.location": str(directory / "segments"),
        "metadata.log.dir": str(directory / f"node-{node.id}"),
        "offsets.topic.num.partitions": "3",
        "min.insync.replicas": "1",
    }


@contextmanager
def three_nodes(directory: Path) -> Iterator[list[Node]]:
    ports = free_ports(9)
    nodes = [Node(i + 1, *ports[3 * i : 3 * i + 3]) for i in range(3)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    try:
        for node in nodes:
            command = [sys.executable, "-P", "-m", "ottla", "start"]
            file = directory / f"node-{node.id}.properties"
            file.write_text("".join(f"{key}={value}\n" for key, value in properties(node, nodes, directory).items()))
            with (directory / f"node-{node.id}.log").open("ab") as log:
                node.process = subprocess.Popen([*command, str(file)], stdout=log, stderr=log, env=environment)
        eventually(lambda: all(node.get("/readyz") for node in nodes), "all nodes ready", seconds=120)
        yield nodes
    finally:
        for node in nodes:
            if node.process is not None and node.process.poll() is None:
                node.process.kill()
                node.process.wait()


def eventually(condition: Callable[[], object], what: str, seconds: float = 40) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.2)
