"""A Kafka cluster of real node processes for tests, with the faults that tests need. It needs no Docker, no JVM and no root.

    with Cluster(3, cuttable=True) as cluster:
        cluster.bootstrap                    for any Kafka client
        cluster.kill(2)                      kill -9
        cluster.pause(2)                     SIGSTOP: the sockets stay open, nothing answers
        cluster.resume(2)
        cluster.start(2)                     starts it again on the same data and ports
        cluster.restart(2)                   a clean stop, then a start
        cluster.partition(1, 2)              cuts both directions; one_way=True: 2 receives nothing from 1
        cluster.isolate(3)                   from all other nodes; clients=True: from clients, too
        cluster.heal()                       everything, or heal(1, 2)
        cluster.latency(50)                  and bandwidth(100_000): slow connections
        cluster.advance(days=10)             retention, sessions and transactions notice it
        cluster.disk_full(1)                 and slow_disk(100, 1)
        cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS")      and delay("Fetch", 2), versions("Fetch", highest=11)
        cluster.topic("orders", partitions=3, seed=["3 apples"])
        cluster.records("orders", 1)         the first record, once it is there
        cluster.wait_isr("orders")           until every replica is in sync
        cluster.add_user("alice", "write topic:orders")      settings of a user of Cluster(secure=True)
        cluster.snapshot().fork()            another cluster with the same data

Ports are free ones unless `base_port` is given; the directory is a temporary one, removed at the end. When the process that
made a cluster ends in any way, its nodes end too. For pytest there are fixtures (`plugin`) and `factories` of them:
docs/TESTING.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.protocol.api import ApiKey
    from ottla.protocol.errors import ErrorCode
    from ottla.protocol.releases import KAFKA_VERSIONS
    from ottla.testing.clients import Clients, SeenRecord
    from ottla.testing.cluster import Cluster
    from ottla.testing.errors import WrongUse
    from ottla.testing.kafka import KafkaContainer
    from ottla.testing.snapshots import ClusterSnapshot

__all__ = [
    "KAFKA_VERSIONS",
    "ApiKey",
    "Clients",
    "Cluster",
    "ClusterSnapshot",
    "ErrorCode",
    "KafkaContainer",
    "SeenRecord",
    "WrongUse",
]

#: The module that has each name.
MODULES = {
    "ApiKey": "ottla.protocol.api",
    "Clients": "ottla.testing.clients",
    "Cluster": "ottla.testing.cluster",
    "ClusterSnapshot": "ottla.testing.snapshots",
    "ErrorCode": "ottla.protocol.errors",
    "KAFKA_VERSIONS": "ottla.protocol.releases",
    "KafkaContainer": "ottla.testing.kafka",
    "SeenRecord": "ottla.testing.clients",
    "WrongUse": "ottla.testing.errors",
}


def __getattr__(name: str) -> object:
    # pytest imports the plugin, and thus this file, at every start, even if no test uses it: so the codec is imported later.
    if name in MODULES:
        return getattr(import_module(MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
