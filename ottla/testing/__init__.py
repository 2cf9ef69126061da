"""A Kafka cluster of real node processes for tests, with the accidents that tests are about. No Docker, no JVM, no root.

    with Cluster(3, cuttable=True) as cluster:
        cluster.bootstrap                    for any Kafka client
        cluster.kill(2)                      kill -9
        cluster.pause(2)                     SIGSTOP: the sockets stay open, nothing answers
        cluster.resume(2)
        cluster.start(2)                     again, on the same data and ports
        cluster.restart(2)                   an orderly stop, then a start
        cluster.partition(1, 2)              cuts both directions; one_way=True: 2 receives nothing from 1
        cluster.isolate(3)                   from all other nodes; clients=True: and from clients
        cluster.heal()                       everything, or heal(1, 2)
        cluster.wait_isr("orders")           until every replica is in sync
        cluster.add_user("alice", "write topic:orders")      settings of a user of Cluster(secure=True)

Ports are free ones unless `base_port` is given; the directory is a temporary one, removed at the end. However the process ends
that made a cluster, no node outlives it. For pytest there are fixtures (`plugin`) and `factories` of them: docs/TESTING.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.testing.cluster import Cluster

__all__ = ["Cluster"]


def __getattr__(name: str) -> object:
    # pytest imports the plugin beside this at every start, also of those who never use it: they must not pay for the codec.
    if name != "Cluster":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ottla.testing.cluster import Cluster

    return Cluster
