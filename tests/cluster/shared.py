"""One cluster for the tests of a file: each of them finds all nodes running and known to each other, and no topic."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.local.nodes import HOST
from ottla.protocol.api import ApiKey
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.testing import Cluster
from ottla.testing.connection import ClusterConnection
from tests.broker.conftest import eventually

SECONDS_MAX = 60
#: A killed controller is noticed by its broken connections. By default a controller that gets no processor for two seconds
#: would be voted out, and its successor fences its broker unless that broker sends a heartbeat within 0.1 s: on a busy machine
#: partitions would get other leaders.
STEADY = {"controller_quorum_fetch_timeout_ms": "10000"}
#: Settings of a cluster where a test measures how long clients wait when a broker dies or leaves. If its lost connections were
#: not noticed, the wait would be a session without a heartbeat's interval, 28 s; a busy machine may take some seconds.
PATIENT = {**STEADY, "broker_session_timeout_ms": "30000"}
WITHOUT_THE_HINT_SECONDS = 20.0


def make_topics(admin: AdminClient, *wanted: NewTopic, seconds: float = 30) -> None:
    """Create the topics. If a controller is voted out before it answers, the broker sends the request to its successor, which
    knows the topic already: so each topic has a name that no other test has used.
    """
    for made in admin.create_topics(list(wanted), operation_timeout=seconds).values():
        try:
            made.result(seconds)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def clear(cluster: Cluster) -> None:
    """Undo what a test did to nodes and topics. Files and settings are left to the test itself."""
    for node_id in cluster.nodes:
        if cluster.is_running(node_id):
            cluster.resume(node_id)
    cluster.start(*cluster.nodes)
    for node_id in cluster.nodes:
        eventually(lambda n=node_id: brokers(cluster, n) == 3, f"three brokers on {node_id}", SECONDS_MAX)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    if names := known_topics(cluster):
        for deleted in admin.delete_topics(names).values():
            try:
                deleted.result(SECONDS_MAX)
            except KafkaException as error:
                # The first request may have succeeded, as in `make_topics`.
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
    for node_id in cluster.nodes:
        eventually(lambda n=node_id: not topics(cluster, n), f"no topic on {node_id}", SECONDS_MAX)


def brokers(cluster: Cluster, node_id: int) -> int:
    """Return the number of unfenced brokers that the node knows; 0 if it was cut off, and has not noticed yet that this is
    over.

    Metadata would also list brokers that were just fenced (broker/lost_leaders.py).
    """
    try:
        with ClusterConnection(HOST, cluster.nodes[node_id].port, None) as connection:
            return len(connection.request(DescribeClusterRequest(), ApiKey.DESCRIBE_CLUSTER, 1).brokers)
    except OSError:
        return 0


def known_topics(cluster: Cluster) -> list[str]:
    """Return the topics that the first node knows. After a cut it may close a connection once more, when it sees that it was
    replaced.
    """
    names: list[str] = []

    def answered() -> bool:
        names[:] = topics(cluster, 1)
        return True

    eventually(answered, "the topics of node 1", SECONDS_MAX)
    return names


def topics(cluster: Cluster, node_id: int) -> list[str]:
    return [topic.name for topic in cluster.metadata(node_id=node_id).topics if not topic.is_internal]
