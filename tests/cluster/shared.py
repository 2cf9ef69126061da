"""One cluster for the tests of a file: each of them finds all nodes running and known to each other, and no topic."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient

from ottla.cli.local_nodes import HOST
from ottla.protocol.api import ApiKey
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.testing import Cluster
from ottla.testing.connection import Connection
from tests.broker.conftest import eventually

SECONDS_MAX = 60


def clear(cluster: Cluster) -> None:
    """Undoes what a test did to nodes and topics. Files and settings are the test's own matter."""
    for node_id in cluster.nodes:
        if cluster.is_running(node_id):
            cluster.resume(node_id)
    cluster.start(*cluster.nodes)
    for node_id in cluster.nodes:
        eventually(lambda n=node_id: brokers(cluster, n) == 3, f"three brokers on {node_id}", SECONDS_MAX)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    if names := known_topics(cluster):
        for deleted in admin.delete_topics(names).values():
            deleted.result(SECONDS_MAX)
    for node_id in cluster.nodes:
        eventually(lambda n=node_id: not topics(cluster, n), f"no topic on {node_id}", SECONDS_MAX)


def brokers(cluster: Cluster, node_id: int) -> int:
    """Returns how many brokers are unfenced, as the node knows; 0 if it was cut off, and has not noticed yet that this is over.

    Metadata would also list those that were just fenced (broker/lost_leaders.py).
    """
    try:
        with Connection(HOST, cluster.nodes[node_id].port, None) as connection:
            return len(connection.request(DescribeClusterRequest(), ApiKey.DESCRIBE_CLUSTER, 1).brokers)
    except OSError:
        return 0


def known_topics(cluster: Cluster) -> list[str]:
    """Returns the topics that the first node knows; it may close a connection once more after a cut, when it sees that it was replaced."""
    names: list[str] = []

    def answered() -> bool:
        names[:] = topics(cluster, 1)
        return True

    eventually(answered, "the topics of node 1", SECONDS_MAX)
    return names


def topics(cluster: Cluster, node_id: int) -> list[str]:
    return [topic.name for topic in cluster.metadata(node_id=node_id).topics if not topic.is_internal]
