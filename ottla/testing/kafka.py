"""A suite that uses testcontainers changes only one import: this `KafkaContainer` has the same methods.

    from ottla.testing.kafka import KafkaContainer      in place of testcontainers.kafka

    with KafkaContainer() as kafka:
        kafka.get_bootstrap_server()

It is a node process and no container: the image's name has no effect, and methods that only a container can have raise an error
with one sentence.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, NoReturn

from ottla.container.kafka_dialect import NOT_PROPERTIES, PREFIX, property_name
from ottla.local.nodes import HOST
from ottla.testing.cluster import Cluster

#: Properties about the node's addresses and identity, which this class sets itself.
PLACES = frozenset(
    {
        *("listeners", "advertised.listeners", "listener.security.protocol.map", "inter.broker.listener.name"),
        *("broker.id", "node.id", "process.roles", "log.dirs", "zookeeper.connect"),
        *("controller.quorum.voters", "controller.quorum.bootstrap.servers", "controller.listener.names"),
    }
)


class KafkaContainer:
    """One node. After its start `cluster` has the verbs of `Cluster`."""

    def __init__(self, image: str = "", port: int = 9093, **kwargs: object) -> None:
        self.image = image
        self.port = port
        self.env: dict[str, str] = {}
        self._host_port = 0
        self._cluster: Cluster | None = None

    def with_env(self, key: str, value: object) -> KafkaContainer:
        """Set a variable of the image: KAFKA_<NAME> is a property of the node, unless it is about the node's address.

        Other variables are ignored.
        """
        self.env[key] = str(value)
        return self

    def with_envs(self, **variables: object) -> KafkaContainer:
        for key, value in variables.items():
            self.with_env(key, value)
        return self

    def with_bind_ports(self, container: int, host: int | None = None) -> KafkaContainer:
        """Listen on that port of this machine.

        The controller uses a port 100 above it, and the admin listener one 200 above it.
        """
        if container == self.port:
            self._host_port = host or 0
        return self

    def with_kraft(self) -> KafkaContainer:
        """Do nothing: KRaft is the only mode."""
        return self

    def with_cluster_id(self, cluster_id: str) -> KafkaContainer:
        """Do nothing: each start makes a new id."""
        return self

    def with_name(self, name: str) -> KafkaContainer:
        """Do nothing: a process has no name."""
        return self

    def with_exposed_ports(self, *ports: int) -> KafkaContainer:
        """Do nothing: a process listens on this machine."""
        return self

    def with_kwargs(self, **kwargs: Any) -> KafkaContainer:
        """Do nothing: these are settings of Docker."""
        return self

    def start(self, timeout: float = 30) -> KafkaContainer:
        """Start the node, and return this object. Raises RuntimeError if the node did not start; the message says why."""
        properties = {
            property_name(key): value
            for key, value in self.env.items()
            if key.startswith(PREFIX) and key not in NOT_PROPERTIES
        }
        own = {name: value for name, value in properties.items() if name not in PLACES}
        self._cluster = Cluster(1, base_port=self._host_port, per_node={1: own}).__enter__()
        return self

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def __enter__(self) -> KafkaContainer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def cluster(self) -> Cluster:
        if self._cluster is None:
            raise RuntimeError("the node has not been started")
        return self._cluster

    def get_bootstrap_server(self) -> str:
        return self.cluster.bootstrap

    def get_container_host_ip(self) -> str:
        return HOST

    def get_exposed_port(self, port: int) -> int:
        if port != self.port:
            raise ConnectionError(f"port {port} is not exposed, {self.port} is")
        return self.cluster.nodes[1].port

    def get_logs(self) -> tuple[bytes, bytes]:
        """Return the node's log, and no bytes for standard error: a node writes all to one place."""
        return self.cluster.log(1).encode(), b""

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{name}: this is a node process and no container of Docker. `cluster` has what it can do")
