"""The node of `ottla start` without a file; `ottla dev` starts its nodes from the same properties.

A file of its own, because the command imports nothing else before its arguments are checked.
"""

from __future__ import annotations

import os
import stat

PROGRAM = "ottla start"
#: The first user of the machine who needs this directory makes it.
SHARED = "/tmp/ottla-logs"


def default_log_dir() -> str:
    """Return ./data if it can be created, else a directory below /tmp as in Kafka."""
    return os.path.join(os.getcwd(), "data") if os.access(os.getcwd(), os.W_OK) else SHARED


def is_of_another(directory: str) -> bool:
    """Return whether another user has made the directory, who can read and change what lies there, or it leads elsewhere."""
    try:
        found = os.lstat(directory)
    except FileNotFoundError:
        return False
    return found.st_uid != os.geteuid() or not stat.S_ISDIR(found.st_mode)


def default_properties() -> dict[str, str]:
    """Return the properties of a node without a file: one broker and controller in one process, on Kafka's ports."""
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": default_log_dir(),
        **internal_topics(1),
    }


def internal_topics(brokers: int) -> dict[str, str]:
    """Return the replication that the internal topics of a cluster of this many brokers can have. Kafka's defaults need
    three.
    """
    copies, min_isr = str(min(3, brokers)), str(min(2, brokers))
    return {
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": min_isr,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": min_isr,
    }


def replication(brokers: int) -> dict[str, str]:
    """Return the replication of all topics: three replicas, of which two are in sync when a record is acknowledged, if there are as many."""
    return {
        "default.replication.factor": str(min(3, brokers)),
        "min.insync.replicas": str(min(2, brokers)),
        **internal_topics(brokers),
    }
