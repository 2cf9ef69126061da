"""The states of a broker's life cycle (lifecycle.py), and why each changes into which."""

from __future__ import annotations

from enum import Enum


class BrokerState(Enum):
    """Kafka's states with their numbers. A broker that is registered again, or fenced, keeps its state."""

    NOT_RUNNING = 0
    STARTING = 1  # registers, and reads the metadata up to its own registration
    RECOVERY = 2  # recovers its logs, opens its listeners, then calls `ready_to_unfence`
    RUNNING = 3  # was unfenced: may lead
    PENDING_CONTROLLED_SHUTDOWN = 6  # asks the controller to move its leaders away
    SHUTTING_DOWN = 7  # sends no more heartbeats


_STOPPED = "stopped, or the registration was refused for good"
TRANSITIONS: dict[BrokerState, dict[BrokerState, str]] = {
    BrokerState.NOT_RUNNING: {
        BrokerState.STARTING: "started",
        BrokerState.SHUTTING_DOWN: "stopped before it was started",
    },
    BrokerState.STARTING: {
        BrokerState.RECOVERY: "the controller says that it has caught up with the metadata",
        BrokerState.PENDING_CONTROLLED_SHUTDOWN: "a controlled shutdown, when it is registered",
        BrokerState.SHUTTING_DOWN: _STOPPED,
    },
    BrokerState.RECOVERY: {
        BrokerState.RUNNING: "unfenced by the controller",
        BrokerState.PENDING_CONTROLLED_SHUTDOWN: "a controlled shutdown",
        BrokerState.SHUTTING_DOWN: _STOPPED,
    },
    BrokerState.RUNNING: {
        BrokerState.PENDING_CONTROLLED_SHUTDOWN: "a controlled shutdown",
        BrokerState.SHUTTING_DOWN: "stopped, all log directories have failed, or another process has its node id",
    },
    BrokerState.PENDING_CONTROLLED_SHUTDOWN: {
        BrokerState.SHUTTING_DOWN: "its leaders are moved away, no controller answers, or the time is up",
    },
    BrokerState.SHUTTING_DOWN: {},
}
