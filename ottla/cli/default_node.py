"""The node of `ottla start` without a file; `ottla dev` starts its nodes from the same properties.

A file of its own, because the command imports nothing else before its arguments are checked.
"""

from __future__ import annotations

import os

PROGRAM = "ottla start"


def default_log_dir() -> str:
    """Returns ./data if it can be created, else a directory below /tmp as in Kafka."""
    return os.path.join(os.getcwd(), "data") if os.access(os.getcwd(), os.W_OK) else "/tmp/ottla-logs"


def default_properties() -> dict[str, str]:
    """Return the properties of a node without a file: one broker and controller in one process, on Kafka's ports."""
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": default_log_dir(),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
    }
