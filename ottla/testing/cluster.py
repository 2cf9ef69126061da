"""A cluster of real node processes, with the faults that tests need."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

from ottla.local import directory as local_directory
from ottla.local import former_addresses
from ottla.local import nodes as local_nodes
from ottla.local.nodes import HOST, LocalNode
from ottla.processes.children import ChildNode, spawn
from ottla.protocol.api import ApiKey
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from ottla.testing.clients import Clients
from ottla.testing.conditions import Condition
from ottla.testing.connection import ClusterConnection
from ottla.testing.cuttable import Cuttable
from ottla.testing.errors import MadeOtherwise, NotRunning
from ottla.testing.nursery import ForkedNode, Nursery
from ottla.testing.snapshots import ClusterSnapshot
from ottla.testing.spoiled import Spoiled

if TYPE_CHECKING:
    from ottla.local.secure_files import SecureFiles

METADATA_VERSION = 12
STOP_SECONDS_MAX = 30.0
POLL_SECONDS = 0.02


class Cluster(Spoiled, Cuttable, Clients):
    """A cluster of node processes, with ids from 1 to `nodes`. The package's docstring lists what tests can do with it."""

    def __init__(
        self,
        nodes: int = 3,
        *,
        directory: str | None = None,
        temporary: bool | None = None,
        base_port: int = 0,
        per_node: Mapping[int, Mapping[str, str]] | None = None,
        cuttable: bool = False,
        secure: bool = False,
        spoilable: bool = True,
        **properties: str,
    ) -> None:
        """Take the `properties` of every node, with underscores in place of the dots of their names, and those of single nodes
        in `per_node` by their real names. A `temporary` directory is removed at the end; without a `directory`, a temporary one
        is made. `cuttable` lays the connections of nodes and clients so that `partition` and `isolate` can cut them. `secure`:
        with TLS, logins by SCRAM-SHA-512 and ACLs: `client_settings` are those of a super user, `add_user` makes others. A
        cluster that is not `spoilable` runs `ottla start` as in production, for measurements: it rejects faults of clocks,
        disks and responses.
        """
        self._spoilable = spoilable
        self._made: dict[str, Any] = {
            "nodes": nodes,
            "per_node": per_node,
            "cuttable": cuttable,
            "secure": secure,
            "spoilable": spoilable,
            **properties,
        }
        self._temporary = directory is None if temporary is None else temporary
        self.directory = os.path.abspath(directory or tempfile.mkdtemp(prefix="ottla-test-"))
        kept = local_directory.look(self.directory, nodes)
        local_directory.keep(self.directory, kept)
        every = local_nodes.plan(nodes, base_port, self.directory)
        self.nodes = {node.id: node for node in every}
        Spoiled.__init__(self, self.directory, list(self.nodes))
        Cuttable.__init__(self, every, cuttable=cuttable, are_ports_set=base_port > 0)
        common = {"cluster.id": kept.cluster_id} | {name.replace("_", "."): text for name, text in properties.items()}
        own = per_node or {}
        self._former = former_addresses.detours(self.directory, local_nodes.addresses(every))
        self._properties = {
            node.id: local_nodes.properties_of(node, every)
            | common
            | self._detours(node.id)
            | dict(own.get(node.id, {}))
            for node in every
        }
        self._secure: SecureFiles | None = None
        if secure:
            from ottla.local.security import secure as secured

            self._secure = secured(every, self.directory, kept.cluster_id, self._properties)
            for node_id, given in own.items():  # the properties of the test win
                self._properties[node_id].update(given)
        self._paused: set[int] = set()

    def __enter__(self) -> Cluster:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- Facts -------------------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        return ",".join(self.address(node_id) for node_id in self.nodes)

    @property
    def client_settings(self) -> dict[str, str]:
        security = {} if self._secure is None else self._secure.librdkafka()
        return {"bootstrap.servers": self.bootstrap} | security

    @property
    def secure_files(self) -> SecureFiles | None:
        return self._secure

    @property
    def client_file(self) -> str:
        """A file of client properties for Java's tools and `ottla --config`. Only a secure cluster has it.

        Raises:
            MadeOtherwise: the cluster is not secure.
        """
        return self._files().client_file()

    @property
    def _properties_file(self) -> str | None:
        return None if self._secure is None else self.client_file

    def add_user(self, name: str, *allowed: str) -> dict[str, str]:
        from ottla.testing import users

        files = self._files()
        nodes = [self._connector(node.port) for node_id, node in self.nodes.items() if self._serves(node_id)]
        if not nodes:
            raise NotRunning("no node runs", "start(1) starts one")
        self._secure = files.with_user(name, users.add(nodes, name, allowed))
        return {"bootstrap.servers": self.bootstrap} | self._secure.librdkafka(name)

    def _files(self) -> SecureFiles:
        if self._secure is None:
            raise MadeOtherwise(
                "this cluster has no users",
                "make it with secure=True, as Cluster or factories.kafka_cluster, or by `ottla dev --secure`",
            )
        return self._secure

    def _serves(self, node_id: int) -> bool:
        return self.is_running(node_id) and node_id not in self._paused

    def _connector(self, port: int) -> Callable[[], ClusterConnection]:
        return lambda: ClusterConnection(HOST, port, self._secure)

    def address(self, node_id: int | None = None) -> str:
        """Return the address at which clients connect to the node."""
        return self.node(node_id).address

    def node(self, node_id: int | None = None) -> LocalNode:
        """
        Raises:
            NoSuchNode: the cluster has none of that id, or several and none is named.
        """
        return self.nodes[self._named(node_id)]

    @property
    def node_ids(self) -> list[int]:
        return list(self.nodes)

    def pid(self, node_id: int | None = None) -> int:
        """Return the process id of a node. The process may have ended.

        Raises:
            NotRunning: it was never started.
        """
        node = self.node(node_id)
        if node.process is None:
            raise NotRunning(f"node {node.id} was never started", f"start({node.id}) starts it")
        return node.process.pid

    def is_running(self, node_id: int | None = None) -> bool:
        return self.node(node_id).is_running

    def is_paused(self, node_id: int | None = None) -> bool:
        return self._named(node_id) in self._paused

    @property
    def log_files(self) -> list[str]:
        return [node.log_file for node in self.nodes.values()]

    def log(self, node_id: int | None = None) -> str:
        """Return the node's log output so far."""
        with open(self.node(node_id).log_file, encoding="utf-8", errors="replace") as file:
            return file.read()

    # -- Faults ------------------------------------------------------------------------------------------------------

    def start(self, *node_ids: int) -> float:
        """Start the nodes that do not run, among these or all. Return the seconds until all of them serve clients."""
        began = time.monotonic()
        nodes = [
            self.node(node_id) for node_id in dict.fromkeys(node_ids or self.nodes) if not self.is_running(node_id)
        ]
        for node in nodes:
            local_nodes.start(node, self._properties[node.id], partial(self._born, node))
        failure = local_nodes.wait_ready(nodes)
        if failure is not None:
            raise RuntimeError(failure)
        return time.monotonic() - began

    def _born(self, node: LocalNode, arguments: Sequence[str], output: IO[bytes]) -> ChildNode:
        if not self._spoilable:
            return spawn(arguments, output)
        forked = Nursery.here().spawn(arguments, output, node.dir, self.faults_of(node.id))
        return ChildNode(forked, forked.ready_fd, forked.alive_fd)

    def kill(self, node_id: int | None = None) -> None:
        """Kill the node with SIGKILL. In a cluster of one node no id is needed, here and below."""
        node_id = self._named(node_id)
        self._signal(node_id, signal.SIGKILL)
        self._wait(node_id)
        self._paused.discard(node_id)

    def pause(self, node_id: int | None = None) -> None:
        """Pause the node (SIGSTOP): its sockets stay open, and nothing responds."""
        node_id = self._named(node_id)
        self._signal(node_id, signal.SIGSTOP)
        self._paused.add(node_id)

    def resume(self, node_id: int | None = None) -> None:
        """Resume a paused node."""
        node_id = self._named(node_id)
        self._signal(node_id, signal.SIGCONT)
        self._paused.discard(node_id)
        if self._spoilable:
            self._send_faults(node_id)

    def stop(self, node_id: int | None = None) -> None:
        """Stop the node by controlled shutdown: leadership moves first."""
        node_id = self._named(node_id)
        self._signal(node_id, signal.SIGTERM)
        self._wait(node_id)

    def restart(self, node_id: int | None = None) -> float:
        """Stop the node in order if it runs, and start it. Return the seconds that the start took."""
        node_id = self._named(node_id)
        if self.is_running(node_id):
            self.stop(node_id)
        return self.start(node_id)

    def snapshot(self) -> ClusterSnapshot[Cluster]:
        """Keep the data of this moment, and go on. Each `fork()` of the snapshot is a separate cluster."""
        return ClusterSnapshot(self.directory, self._again)

    def _again(self, directory: str, temporary: bool) -> Cluster:
        return Cluster(directory=directory, temporary=temporary, **self._made)

    def heal(self, *pair: int) -> None:
        """End the faults of the connections between two nodes.

        Without a pair, end all: those of connections, disks, clocks and responses.
        """
        self._mend_links(*pair)
        if not pair:
            self._mend_nodes()

    def condition(self) -> Condition:
        """Return which nodes run and which faults exist, for `restore`."""
        ways = {} if self._links is None else self._links.states()
        running = frozenset(filter(self.is_running, self.nodes))
        return Condition(dict(self._faults), ways, running, frozenset(self._paused))

    def restore(self, condition: Condition | None = None) -> None:
        """End all faults, or those since `condition`: killed nodes are started, and paused ones resumed.

        The data stays as it is.

        If the clock was advanced, the nodes are killed and started with the former time.
        """
        wanted = condition or Condition.as_started(self.nodes)
        if self._links is not None:
            self._links.restore(wanted.ways)
        over = set(self.nodes) if self.advanced_ms != wanted.advanced_ms else set(self.nodes) - wanted.running
        for node_id in filter(self.is_running, over):
            self.kill(node_id)
        for node_id in self._paused - wanted.paused:
            self.resume(node_id)
        for node_id, faults in wanted.faults.items():
            self._set_faults(node_id, faults)
        if wanted.running:
            self.start(*wanted.running)
        for node_id in wanted.paused - self._paused:
            self.pause(node_id)

    def _send_faults(self, node_id: int) -> None:
        """A node that does not run, or is paused, gets the faults when it is started or resumed."""
        if not self._spoilable:
            raise MadeOtherwise("the nodes of this cluster run as in production", "make it without spoilable=False")
        process = self.nodes[node_id].process
        if self._serves(node_id) and isinstance(process, ForkedNode):
            process.spoil(self.faults_of(node_id))

    def _detours(self, node_id: int) -> dict[str, str]:
        ways = self._former
        if self._links is None:
            return local_nodes.detours_property(ways)
        cut = dict(way.split("=") for way in self._links.detours(node_id).split(",") if way)
        ways = cut | {old: cut.get(new, new) for old, new in ways.items()}
        return local_nodes.detours_property(ways) | {"advertised.listeners": f"PLAINTEXT://{self.address(node_id)}"}

    def _signal(self, node_id: int, number: int) -> None:
        if not self.is_running(node_id):  # the number may belong to another process by now
            raise NotRunning(f"node {node_id} does not run", f"start({node_id}) starts it")
        os.kill(self.pid(node_id), number)

    def _wait(self, node_id: int) -> None:
        process = self.nodes[node_id].process
        assert process is not None
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            self._paused.discard(node_id)
            raise RuntimeError(f"node {node_id} did not stop within {STOP_SECONDS_MAX} s") from None

    def close(self, *, kill: bool | None = None) -> None:
        """End all nodes.

        If their data is removed as well, they are killed: in an orderly stop they would hand over leaders, and flush, in vain.
        """
        if self._temporary if kill is None else kill:
            for node in self.nodes.values():
                if node.process is not None:
                    node.process.kill()
        else:
            for node_id in list(self._paused):
                self.resume(node_id)
            if self._links is not None:
                self._links.mend()  # an orderly stop needs the other nodes
        local_nodes.stop([node for node in self.nodes.values() if node.process is not None])
        if self._links is not None:
            self._links.close()
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    # -- What the cluster says ---------------------------------------------------------------------------------------

    def metadata(self, topics: Sequence[str] | None = None, node_id: int | None = None) -> MetadataResponse:
        """Return the metadata from one node, or from the first that responds."""
        request = MetadataRequest(
            topics=None if topics is None else [MetadataRequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=False,
        )
        candidates = [node_id] if node_id is not None else [n for n in self.nodes if n not in self._paused]
        lost: Exception | None = None
        for candidate in candidates:
            if self.is_running(candidate):
                try:
                    with ClusterConnection(HOST, self.nodes[candidate].port, self._secure) as connection:
                        response: MetadataResponse = connection.request(request, ApiKey.METADATA, METADATA_VERSION)
                    return response
                except OSError as error:
                    lost = error
        raise ConnectionError(f"no node answers: {lost}")
