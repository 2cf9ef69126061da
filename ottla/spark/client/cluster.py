"""A cluster as Spark's processes see it: bootstrap addresses, topics, leaders, coordinators. Each request is retried.

Errors that pass by themselves (no leader yet, a coordinator that loads, a broker that is gone) are retried until RETRY_SECONDS_MAX,
which is longer than a failover takes. Everything else is raised at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ottla.client.errors import passes
from ottla.client.partitions import TopicPartition
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.server.address import Address, NoAddress, parse_addresses
from ottla.server.network.wire import ANY_VERSION
from ottla.spark.client.connection import SparkConnection
from ottla.spark.client.security import security_of
from ottla.spark.errors import ConnectionLost, ConnectorError, check

T = TypeVar("T")

DEFAULT_PORT = 9092
RETRY_SECONDS_MAX = 60.0
#: Before any broker has responded, the addresses are probably wrong. A cluster that is starting takes a few seconds.
FIRST_CONTACT_SECONDS_MAX = 10.0
RETRY_BACKOFF_SECONDS = 0.1
GROUP, TRANSACTION = 0, 1
#: Later versions of Metadata's responses have topic ids instead of names; this one has both.
_METADATA_VERSION_MAX = 12


class Topic(NamedTuple):
    """A topic and the number of its partitions."""

    name: str
    partitions: int
    is_internal: bool


class BlockingCluster:
    """Connections by address, and the last Metadata response. Not safe to use from several threads."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Take the properties of a Kafka client, without the prefix `kafka.`. Raises ConnectorError if one is wrong."""
        self.addresses = parse_bootstrap(properties.get("bootstrap.servers", ""))
        self._security = security_of(properties)
        self._connections: dict[tuple[str, int], SparkConnection] = {}
        self._brokers: dict[int, tuple[str, int]] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._topic_ids: dict[str, bytes] = {}

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def __enter__(self) -> BlockingCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- Connections

    def connection(self, address: tuple[str, int]) -> SparkConnection:
        known = self._connections.get(address)
        if known is None or known.is_due:
            if known is not None:
                known.close()
            known = self._connections[address] = SparkConnection(*address, self._security)
        return known

    def forget(self, connection: SparkConnection) -> None:
        """Close a connection that was lost, so that the next request makes a new one."""
        connection.close()
        self._connections = {key: value for key, value in self._connections.items() if value is not connection}

    def node(self, node_id: int) -> SparkConnection:
        """Return the connection to a broker.

        Raises ConnectionLost if the metadata does not have the broker, or it cannot be reached.
        """
        if node_id not in self._brokers:
            raise ConnectionLost(f"broker {node_id} is not in the metadata")
        return self.connection(self._brokers[node_id])

    def call(self, connection: SparkConnection, request: Any, version_max: int = ANY_VERSION) -> Any:
        try:
            return connection.call(request, version_max)
        except ConnectionLost:
            self.forget(connection)
            raise

    def call_node(self, node_id: int, request: Any, version_max: int = ANY_VERSION) -> Any:
        return self.call(self.node(node_id), request, version_max)

    def any_call(self, request: Any, version_max: int = ANY_VERSION) -> Any:
        """Send a request that every broker can answer, to the first one that can be reached. Raises the last ConnectionLost."""
        last = ConnectionLost("no broker is known")
        for address in dict.fromkeys((*self._brokers.values(), *self.addresses)):
            try:
                return self.call(self.connection(address), request, version_max)
            except ConnectionLost as fault:
                last = fault
        raise last

    def retry(self, attempt: Callable[[], T], *, also: Sequence[int] = ()) -> T:
        """Return the result of the attempt. It is repeated while it raises errors that pass, or errors with codes in `also`."""
        began = time.monotonic()
        while True:
            try:
                return attempt()
            except ConnectorError as fault:
                passing = isinstance(fault, ConnectionLost) or passes(fault.code) or fault.code in also
                seconds_max = RETRY_SECONDS_MAX if self._brokers else FIRST_CONTACT_SECONDS_MAX
                if not passing or time.monotonic() > began + seconds_max:
                    raise
            time.sleep(RETRY_BACKOFF_SECONDS)
            self._leaders.clear()

    # -- Metadata

    def topics(self, names: Iterable[str] | None = None) -> list[Topic]:
        """Return the topics with these names, or all topics. Raises ConnectorError for a topic that does not exist."""
        return self.retry(lambda: self._topics(names))

    def _topics(self, names: Iterable[str] | None) -> list[Topic]:
        response = self._metadata(None if names is None else list(names))
        found = []
        for row in response.topics:
            check(f"topic {row.name}", row.error_code)
            found.append(Topic(str(row.name), len(row.partitions), row.is_internal))
        return sorted(found)

    def _metadata(self, names: list[str] | None) -> MetadataResponse:
        rows = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(rows, allow_auto_topic_creation=False)
        response: MetadataResponse = self.any_call(request, _METADATA_VERSION_MAX)
        self._brokers = {row.node_id: (row.host, row.port) for row in response.brokers}
        for topic in response.topics:
            self._topic_ids[str(topic.name)] = topic.topic_id
            for part in topic.partitions:
                self._leaders[str(topic.name), part.partition_index] = part.leader_id
        return response

    def topic_ids(self, names: Iterable[str]) -> dict[str, bytes]:
        """Return the topic ids in the last Metadata response with each topic. A broker before Kafka 2.8 has none."""
        return {name: self._topic_ids[name] for name in names if any(self._topic_ids.get(name, b""))}

    @property
    def brokers(self) -> list[int]:
        """Ids of the brokers in the last Metadata response."""
        return sorted(self._brokers)

    def leader(self, place: TopicPartition) -> int:
        """Return the leader of a partition. Raises ConnectorError (retriable) while there is none."""
        if place not in self._leaders:
            name, index = place
            for topic in self._metadata([name]).topics:
                check(f"topic {name}", topic.error_code)
            if place not in self._leaders:
                check(f"partition {name}-{index}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if self._leaders[place] < 0:
            self._leaders.pop(place)
            check(f"partition {place[0]}-{place[1]}", ErrorCode.LEADER_NOT_AVAILABLE)
        return self._leaders[place]

    def forget_leader(self, place: TopicPartition) -> None:
        self._leaders.pop(place, None)

    def by_leader(self, places: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        found: dict[int, list[TopicPartition]] = {}
        for place in places:
            found.setdefault(self.leader(place), []).append(place)
        return found

    def coordinator(self, key: str, kind: int) -> SparkConnection:
        """Return the connection to the coordinator of a group or a transactional id. Raises ConnectorError while there is none."""
        response = self.any_call(FindCoordinatorRequest(key, kind), 3)
        check(f"coordinator of {key}", response.error_code, response.error_message)
        return self.connection((response.host, response.port))

    def ask_coordinator(self, key: str, kind: int, request: Any, version_max: int = ANY_VERSION) -> Any:
        return self.call(self.coordinator(key, kind), request, version_max)


def parse_bootstrap(text: str) -> list[Address]:
    """Return the addresses of `kafka.bootstrap.servers`.

    Raises:
        ConnectorError: there is no address, or a text is none.
    """
    try:
        found = parse_addresses(text, DEFAULT_PORT)
    except NoAddress as fault:
        raise ConnectorError(f"kafka.bootstrap.servers: {fault}", "each address is HOST:PORT") from None
    if not found:
        raise ConnectorError(
            "kafka.bootstrap.servers is missing", "give the addresses of the brokers: HOST:PORT,HOST:PORT"
        )
    return found
