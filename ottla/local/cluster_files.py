"""The files of a cluster whose nodes run on other machines, for `ottla init`: a server.properties for each node.

    hosts 1 to 3     broker and controller in one process; with one or two hosts the first one is the whole quorum
    further hosts    brokers

The quorum is dynamic (KIP-853), so that a controller can be replaced. All first voters are formatted by the same command, which
names each with the id of its directory; a broker formats its directory itself, by the cluster.id in its file.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from ottla.client.failures import Failure, Kind
from ottla.local import secure_files
from ottla.local.secure_files import NAME_CHARACTERS, SecureFiles, new_directory, property_lines, write_new
from ottla.node.default_node import replication
from ottla.node.formatting import new_directory_id
from ottla.protocol.primitives import new_uuid, uuid_to_str

#: A quorum of three survives the loss of one voter. More voters make each change of the metadata slower.
VOTERS_MAX = 3
NODES_MAX = 100
USERS = "users"
PORT, CONTROLLER_PORT, ADMIN_PORT = 9092, 9093, 9644


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """A node on its own machine. Its files are named after it."""

    node_id: int
    name: str
    host: str
    is_controller: bool


@dataclass(frozen=True, slots=True)
class PlannedCluster:
    """The nodes of a new cluster, and the settings on which all of them must agree."""

    nodes: tuple[PlannedNode, ...]
    cluster_id: str
    #: The controllers, in the form of `ottla format --initial-controllers`.
    initial_controllers: str
    #: The log directory on each machine, and the directory of its settings and keys.
    data: str
    installed: str

    @property
    def controllers(self) -> list[PlannedNode]:
        return [node for node in self.nodes if node.is_controller]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{node.host}:{PORT}" for node in self.nodes)

    def format_command(self, *, users: bool) -> str:
        """Return the command that formats a controller; it is the same for all.

        With `users` it names the file of the first users.
        """
        command = f"ottla format {self.installed}/server.properties --initial-controllers {self.initial_controllers}"
        return f"{command} --users {USERS}" if users else command

    def properties_of(self, node: PlannedNode, protocol: str) -> dict[str, str]:
        listeners = {protocol: PORT} | ({"CONTROLLER": CONTROLLER_PORT} if node.is_controller else {})
        return {
            "process.roles": "broker,controller" if node.is_controller else "broker",
            "node.id": str(node.node_id),
            "cluster.id": self.cluster_id,
            "listeners": ",".join(f"{name}://:{port}" for name, port in listeners.items()),
            "advertised.listeners": ",".join(f"{name}://{node.host}:{port}" for name, port in listeners.items()),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": ",".join(f"{c.host}:{CONTROLLER_PORT}" for c in self.controllers),
            # A controller that has lost its disk joins again, with the id of its new directory instead of the old one.
            **({"controller.quorum.auto.join.enable": "true"} if node.is_controller else {}),
            "log.dirs": self.data,
            "ottla.admin.listener": f"127.0.0.1:{ADMIN_PORT}",
            **replication(len(self.nodes)),
        }


def plan(hosts: Sequence[str], rng: Random, data: str, installed: str) -> PlannedCluster:
    """Return the cluster of these hosts, with new ids."""
    voters = VOTERS_MAX if len(hosts) >= VOTERS_MAX else 1
    nodes = tuple(PlannedNode(number, host, host, number <= voters) for number, host in enumerate(hosts, 1))
    first = [
        f"{node.node_id}@{node.host}:{CONTROLLER_PORT}:{uuid_to_str(new_directory_id(rng))}" for node in nodes[:voters]
    ]
    return PlannedCluster(nodes, _cluster_id(rng), ",".join(first), data, installed)


def _cluster_id(rng: Random) -> str:
    """Return a cluster id that does not look like an option on a command line."""
    while (text := uuid_to_str(new_uuid(rng))).startswith("-"):
        pass
    return text


def read_hosts(text: str) -> list[str]:
    """Read `--nodes`: a number of nodes, which are then named node-1 and so on, or host names, separated by commas.

    Raises:
        Failure: the text is neither, or a host is named twice.
    """
    hosts = [part.strip() for part in text.split(",")]
    if text.isascii() and text.isdigit():
        hosts = [f"node-{number}" for number in range(1, min(int(text), NODES_MAX + 1) + 1)]
    if not hosts or len(hosts) > NODES_MAX or not all(map(_is_host, hosts)):
        raise Failure(
            f"--nodes {text} is neither a number from 1 to {NODES_MAX} nor a list of host names",
            "--nodes 3",
            Kind.WRONG,
        )
    if twice := next((host for host in hosts if hosts.count(host) > 1), None):
        raise Failure(f"--nodes names {twice} twice", "each node has a machine of its own here", Kind.WRONG)
    return hosts


def _is_host(text: str) -> bool:
    return bool(text) and not text.startswith("-") and NAME_CHARACTERS.issuperset(text)


def make(directory: str, cluster: PlannedCluster, *, secure: bool, users: Sequence[str] = ()) -> SecureFiles | None:
    """Write the files. Return those of security, if there are any.

    Raises:
        Failure: the directory is not empty, a name has invalid characters, or the directory cannot be written.
    """
    protocol = "SASL_SSL" if secure else "PLAINTEXT"
    properties = {node.name: cluster.properties_of(node, protocol) for node in cluster.nodes}
    if secure:
        hosts = {node.name: [node.host, "localhost", "127.0.0.1", "::1"] for node in cluster.nodes}
        return secure_files.make(directory, hosts, users, installed=cluster.installed, properties=properties)
    try:
        directory = new_directory(directory, properties)
        for name, own in properties.items():
            write_new(os.path.join(directory, "nodes", f"{name}.properties"), property_lines(own))
    except OSError as failure:
        raise Failure(f"{failure.filename} cannot be written: {failure.strerror}") from None
    return None
