"""Answers about the cluster from the newest metadata image: leaders, endpoints, names. It decides and remembers nothing.

The endpoint rule: each client is answered with the endpoints of the listener it came in by, so that a client inside a
container network and one on the host both get addresses they can reach. A listener that has no advertised host (the
broker registered an empty one or a wildcard) is answered with the address that the client itself dialled, when the
node asked about is this one; for other nodes with the host they registered.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.controller.metadata.cluster import BrokerRegistration
from ottla.controller.metadata.image import EMPTY, MetadataImage
from ottla.controller.metadata.topics import LOST_DIR, MIGRATING_DIR, UNASSIGNED_DIR, PartitionRegistration
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.shared_structs import NodeEndpoint
from ottla.server.network.context import RequestContext

NO_LEADER = -1
#: A response with one of these errors names the present leader (KIP-951).
LEADER_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
WILDCARDS = frozenset({"", "0.0.0.0", "::", "[::]"})


class MetadataCache:
    """Answers from the newest metadata image."""

    def __init__(self, node_id: int, cluster_id: str) -> None:
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.image: MetadataImage = EMPTY
        #: Listeners of this node that were configured without an advertised host.
        self.unadvertised: frozenset[str] = frozenset()

    # -- Nodes -------------------------------------------------------------------------------------------------------

    def endpoint(self, node_id: int, context: RequestContext) -> NodeEndpoint | None:
        """Return the address of a live broker as this client has to see it."""
        broker = self.image.cluster.brokers.get(node_id)
        if broker is None or broker.fenced:
            return None
        return self.address(broker, context)

    def address(self, broker: BrokerRegistration, context: RequestContext) -> NodeEndpoint | None:
        connection = context.connection
        endpoint = broker.endpoint(connection.listener_name)
        if endpoint is None:
            return None
        host, port = endpoint.host, endpoint.port
        if broker.id == self.node_id and (connection.listener_name in self.unadvertised or host in WILDCARDS):
            host, port = connection.local_host, connection.local_port
        return NodeEndpoint(broker.id, host, port, broker.rack)

    def node_endpoints(self, node_ids: Iterable[int], context: RequestContext) -> list[NodeEndpoint]:
        """Return the addresses of the brokers that live and have this client's listener, in order of their ids: leaders that a response names (KIP-951)."""
        found = (self.endpoint(node_id, context) for node_id in sorted(node_ids))
        return [address for address in found if address is not None]

    def live(self, listener_name: str) -> set[int]:
        """Return the brokers that clients of the listener can reach."""
        brokers = self.image.cluster.brokers.values()
        return {broker.id for broker in brokers if not broker.fenced and broker.endpoint(listener_name) is not None}

    def is_alive(self, node_id: int) -> bool:
        return self.image.cluster.is_unfenced(node_id)

    # -- Topics ------------------------------------------------------------------------------------------------------

    def topic_name(self, topic_id: bytes) -> str | None:
        topic = self.image.topics.by_id(topic_id)
        return None if topic is None else topic.name

    def partition(self, topic: str, index: int) -> PartitionRegistration | None:
        image = self.image.topics.by_name(topic)
        return None if image is None else image.partitions.get(index)

    def leader_and_epoch(self, topic: str, index: int) -> tuple[int, int]:
        partition = self.partition(topic, index)
        return (NO_LEADER, -1) if partition is None else (partition.leader, partition.leader_epoch)

    def offline_replicas(self, partition: PartitionRegistration, listener_name: str) -> list[int]:
        """Return the offline replicas: the broker is unregistered or fenced, lacks the listener, or the log directory failed."""
        offline = []
        for replica in partition.replicas:
            broker = self.image.cluster.brokers.get(replica)
            if (
                broker is None
                or broker.fenced
                or broker.endpoint(listener_name) is None
                or not _is_online(partition.directory(replica), broker)
            ):
                offline.append(replica)
        return offline


def _is_online(directory: bytes, broker: BrokerRegistration) -> bool:
    """Return True also for an unassigned directory, which the broker has not reported yet (KIP-858)."""
    if directory in (UNASSIGNED_DIR, MIGRATING_DIR):
        return True
    return directory != LOST_DIR and directory in broker.directories
