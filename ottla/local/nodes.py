"""Nodes of one cluster as child processes on this machine: for `ottla dev`, and for tests.

The nodes are `ottla start` processes, or forks of this one (ottla/processes/children.py); this module plans, starts and ends
them. It imports nothing of the server, so that a wrong argument is reported at once.
"""

from __future__ import annotations

import os
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Protocol

from ottla.local.former_addresses import controller_key
from ottla.node.default_node import PROGRAM, default_properties, replication
from ottla.processes.children import ChildNode, NodeProcess, spawn

HOST = "127.0.0.1"
#: The folder in the cluster's directory for the tables of topics.
TABLES = "tables"
#: A developer's nodes check this often for segments to copy, and for segments to delete from the disk.
TIER_INTERVAL_MS = 1_000
#: The end of a node is noticed at once; this timeout is for busy machines.
READY_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 30.0
#: The offset of the controllers' ports from the brokers' ports, if a base port is set.
CONTROLLER_PORT_STEP = 100
#: The ports of the admin listeners (health, metrics) are this much higher.
ADMIN_PORT_STEP = 200
#: With more nodes the ports of one kind would overlap with those of the next.
NODES_MAX = CONTROLLER_PORT_STEP
BASE_PORT_MAX = 65_535 - ADMIN_PORT_STEP - NODES_MAX


@dataclass
class LocalNode:
    """One node as a child process."""

    id: int
    port: int
    controller_port: int
    admin_port: int
    dir: str
    #: The port of a proxy at which clients reach it, if it has one. The node listens at `port`.
    proxy_port: int | None = None
    #: A file of properties that must not be in the command line, which every user of the machine can read: passwords, and what
    #: belongs to them.
    properties_file: str | None = None
    process: NodeProcess | None = None
    ready_fd: int = -1
    alive_fd: int = -1
    #: Sockets that keep other processes from taking the ports, also while the node does not run.
    reserved: tuple[socket.socket, ...] = ()
    ready: bool = False
    ended: bool = False
    #: The number of bytes in its log file from earlier starts, or from other runs in the same directory.
    log_begin: int = 0

    @property
    def log_file(self) -> str:
        return os.path.join(self.dir, "server.log")

    @property
    def data_dir(self) -> str:
        return os.path.join(self.dir, "data")

    @property
    def client_port(self) -> int:
        return self.port if self.proxy_port is None else self.proxy_port

    @property
    def address(self) -> str:
        """The address for clients, as HOST:PORT."""
        return f"{HOST}:{self.client_port}"

    @property
    def controller_address(self) -> str:
        return f"{HOST}:{self.controller_port}"

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None


# -- Planning ------------------------------------------------------------------------------------------------------------


def _bound_to_free_ports(count: int) -> list[socket.socket]:
    sockets = []
    for _ in range(count):
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((HOST, 0))
        sockets.append(sock)
    return sockets


def plan(node_count: int, base_port: int, directory: str) -> list[LocalNode]:
    return [_planned(i, base_port, os.path.join(directory, f"node-{i + 1}")) for i in range(node_count)]


def _planned(index: int, base_port: int, directory: str) -> LocalNode:
    if base_port:
        port = base_port + index
        return LocalNode(index + 1, port, port + CONTROLLER_PORT_STEP, port + ADMIN_PORT_STEP, directory)
    sockets = _bound_to_free_ports(3)
    port, controller_port, admin_port = (sock.getsockname()[1] for sock in sockets)
    node = LocalNode(index + 1, port, controller_port, admin_port, directory)
    if sys.platform == "linux":
        # The node can listen on a port that is bound here without listening, and no other process gets the port: neither
        # another cluster that looks for free ports, nor an outgoing connection while the node is down. Elsewhere than on Linux
        # both may happen.
        node.reserved = tuple(sockets)
    return node


def put_behind_proxies(nodes: Iterable[LocalNode]) -> dict[int, int]:
    """Let each node listen on a free port instead of the planned one. Return the planned ports by node: proxies listen there."""
    planned = {}
    for node in nodes:
        (own,) = _bound_to_free_ports(1)
        planned[node.id], node.port = node.port, own.getsockname()[1]
        if sys.platform == "linux":  # `_planned` has the reason
            node.reserved += (own,)
        else:
            own.close()
    return planned


def ports_in_use(nodes: Sequence[LocalNode]) -> list[int]:
    """Return the ports on which a node could not listen. They are tried in the same way as a node does it."""
    taken = []
    for port in sorted(port for node in nodes for port in (node.port, node.controller_port, node.admin_port)):
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind((HOST, port))
            except OSError:
                taken.append(port)
    return taken


def properties_of(node: LocalNode, nodes: Sequence[LocalNode]) -> dict[str, str]:
    return default_properties() | {
        "node.id": str(node.id),
        "listeners": f"PLAINTEXT://{HOST}:{node.port},CONTROLLER://{HOST}:{node.controller_port}",
        "controller.quorum.voters": ",".join(f"{n.id}@{HOST}:{n.controller_port}" for n in nodes),
        "ottla.admin.listener": f"{HOST}:{node.admin_port}",
        "log.dirs": node.data_dir,
        "ottla.table.location": os.path.join(os.path.dirname(os.path.abspath(node.dir)), TABLES),
        # a node whose directory was removed has to start again; directories of local clusters are no mount points
        "ottla.format.empty.directories": "true",
        **replication(len(nodes)),
        # A developer waits for each rebalance of a group; a production group waits for its members instead (3 s).
        "group.initial.rebalance.delay.ms": "0",
    }


def tier_properties(location: str, brokers: int) -> dict[str, str]:
    """Return the properties of nodes with remote storage.

    With Kafka's intervals it takes 30 s until a segment is copied, and 5 min until it leaves the disk. A developer sees both
    within seconds.
    """
    return {
        "remote.log.storage.system.enable": "true",
        "ottla.tier.location": location,
        "rlmm.config.remote.log.metadata.topic.replication.factor": str(min(3, brokers)),
        "remote.log.manager.task.interval.ms": str(TIER_INTERVAL_MS),
        "log.initial.task.delay.ms": str(TIER_INTERVAL_MS),
        "log.retention.check.interval.ms": str(TIER_INTERVAL_MS),
    }


def detours_property(ways: Mapping[str, str]) -> dict[str, str]:
    """Return the property by which a node connects to other addresses than the given ones; none without any."""
    return {"ottla.peer.detours": ",".join(f"{old}={new}" for old, new in ways.items())} if ways else {}


def addresses(nodes: Collection[LocalNode]) -> dict[str, str]:
    """Return the addresses of the nodes, with the keys of former_addresses.py."""
    brokers = {str(node.id): node.address for node in nodes}
    return brokers | {controller_key(node.id): node.controller_address for node in nodes}


def bootstrap(nodes: Sequence[LocalNode]) -> str:
    return ",".join(node.address for node in nodes)


# -- Starting and stopping -----------------------------------------------------------------------------------------------


class NodeBirth(Protocol):
    """Starts a node's process with the arguments of `ottla start` (ottla/processes/children.py)."""

    def __call__(self, arguments: Sequence[str], output: IO[bytes], /) -> ChildNode: ...


def start(node: LocalNode, properties: dict[str, str], birth: NodeBirth = spawn) -> None:
    os.makedirs(node.dir, exist_ok=True)
    if node.alive_fd >= 0:  # of an earlier start
        os.close(node.alive_fd)
    arguments = [] if node.properties_file is None else [node.properties_file]
    for key, value in properties.items():
        arguments += ["--override", f"{key}={value}"]
    with open(node.log_file, "ab") as output:
        node.log_begin = output.tell()
        node.process, node.ready_fd, node.alive_fd = birth(arguments, output)


def wait_ready(nodes: Sequence[LocalNode], on_ready: Callable[[LocalNode], object] = lambda node: None) -> str | None:
    """Return None once all nodes serve, otherwise the reason why they do not.

    `on_ready` is called with each node once it serves.
    """
    selector = selectors.DefaultSelector()
    for node in nodes:
        selector.register(node.ready_fd, selectors.EVENT_READ, node)
    deadline = time.monotonic() + READY_TIMEOUT_S
    while selector.get_map():
        left = deadline - time.monotonic()
        if left <= 0:
            return f"not all nodes were ready within {READY_TIMEOUT_S:.0f} s"
        for key, _ in selector.select(left):
            node = key.data
            node.ready = bool(os.read(node.ready_fd, 64))
            selector.unregister(node.ready_fd)
            os.close(node.ready_fd)
            node.ready_fd = -1
            if not node.ready:
                return f"node {node.id} did not start: {why_it_ended(node)}"
            on_ready(node)
    return None


def why_it_ended(node: LocalNode, lines_max: int = 15) -> str:
    """Return the line in which the node itself explains its end.

    If there is none, return the last lines of its log since this start.
    """
    if node.process is not None:
        with suppress(subprocess.TimeoutExpired):
            # The node closes its pipe before it exits, and Python writes the traceback of a failure at the exit: wait for it.
            node.process.wait(STOP_TIMEOUT_S)
    try:
        with open(node.log_file, encoding="utf-8", errors="replace") as file:
            file.seek(node.log_begin)
            lines = file.readlines()[-lines_max:]
        if not lines:
            is_full = os.statvfs(node.dir).f_bavail == 0
            return f"it has written nothing to {node.log_file}" + (": no space is left on its disk" if is_full else "")
    except OSError:
        return "it has no log"
    own = [number for number, line in enumerate(lines) if line.startswith(f"{PROGRAM}: ")]
    if not own:
        return f"its log ends so:\n{''.join(lines).rstrip()}"
    return "".join(lines[own[-1] :]).removeprefix(f"{PROGRAM}: ").rstrip()


def stop(nodes: Sequence[LocalNode]) -> list[LocalNode]:
    """Stop all nodes at the same time: if they stopped one by one, the last one would have no quorum for a controlled shutdown.

    Return those that had to be killed.
    """
    killed = []
    for node in nodes:
        if node.process is not None and node.process.poll() is None:
            node.process.terminate()
    deadline = time.monotonic() + STOP_TIMEOUT_S
    for node in nodes:
        if node.process is not None:
            try:
                node.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                killed.append(node)
                node.process.kill()
                node.process.wait()
        for fd in (node.ready_fd, node.alive_fd):
            if fd >= 0:
                os.close(fd)
        for sock in node.reserved:
            sock.close()
        node.ready_fd, node.alive_fd, node.reserved = -1, -1, ()
    return killed
