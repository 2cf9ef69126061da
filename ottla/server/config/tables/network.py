"""Sockets, connections and requests."""

from __future__ import annotations

from ottla.server.config.columns import CLUSTER_WIDE, HIGH, INT, LONG, LOW, MEDIUM, STRING
from ottla.server.config.key import INT_MAX, ConfigKey, table
from ottla.server.config.validators import at_least, connection_overrides

# fmt: off
NETWORK = table(
    ConfigKey("socket.send.buffer.bytes", INT, 102_400, HIGH,
        "The kernel's send buffer of a client's connection; -1 leaves it to the system."),
    ConfigKey("socket.receive.buffer.bytes", INT, 102_400, HIGH,
        "The kernel's receive buffer of a client's connection; -1 leaves it to the system."),
    ConfigKey("socket.request.max.bytes", INT, 104_857_600, HIGH,
        "The largest request that is accepted; larger ones close the connection.", at_least(1)),
    ConfigKey("socket.listen.backlog.size", INT, 50, MEDIUM,
        "Connections that may wait to be accepted; the system may allow fewer.", at_least(1)),
    ConfigKey("socket.connection.setup.timeout.ms", LONG, 10_000, MEDIUM,
        "How long to wait for an outgoing connection at first."),
    ConfigKey("socket.connection.setup.timeout.max.ms", LONG, 30_000, MEDIUM,
        "How long to wait for an outgoing connection after several failures."),
    ConfigKey("connections.max.idle.ms", LONG, 600_000, MEDIUM,
        "Connections without a request for this long are closed."),
    ConfigKey("connections.max.reauth.ms", LONG, 0, MEDIUM,
        "How long a SASL session lasts before the client has to authenticate again; 0 means for ever."),
    ConfigKey("connection.failed.authentication.delay.ms", INT, 100, LOW,
        "The pause before a connection that failed to authenticate is closed.", at_least(0)),
    ConfigKey("max.connections", INT, INT_MAX, MEDIUM,
        "Connections this broker has at most; brokers among themselves are not held back.", at_least(0), CLUSTER_WIDE),
    ConfigKey("max.connections.per.ip", INT, INT_MAX, MEDIUM,
        "Connections from one address at most.", at_least(0), CLUSTER_WIDE),
    ConfigKey("max.connections.per.ip.overrides", STRING, "", MEDIUM,
        "Other limits for certain addresses, as host:limit.", connection_overrides, CLUSTER_WIDE),
    ConfigKey("max.connection.creation.rate", INT, INT_MAX, MEDIUM,
        "New connections per second at most.", at_least(0), CLUSTER_WIDE),
    ConfigKey("num.network.threads", INT, 3, HIGH,
        "Accepted for compatibility: one event loop serves all connections.", at_least(1), CLUSTER_WIDE),
    ConfigKey("num.io.threads", INT, 8, HIGH,
        "Accepted for compatibility: requests are handled on the event loop.", at_least(1), CLUSTER_WIDE),
    ConfigKey("background.threads", INT, 10, HIGH,
        "Threads for work in the background that leaves the event loop.", at_least(1), CLUSTER_WIDE),
    ConfigKey("queued.max.requests", INT, 500, HIGH,
        "Accepted for compatibility: requests are not queued, their connections stop being read.", at_least(1)),
    ConfigKey("queued.max.request.bytes", LONG, -1, MEDIUM,
        "Bytes of requests that wait to be handled, at most; -1 means no limit."),
    ConfigKey("request.timeout.ms", INT, 30_000, HIGH,
        "How long this node waits for the answer to a request of its own."),
    ConfigKey("max.request.partition.size.limit", INT, 2000, MEDIUM,
        "Partitions in one answer of DescribeTopicPartitions, at most.", at_least(1)),
    ConfigKey("max.incremental.fetch.session.cache.slots", INT, 1000, MEDIUM,
        "Fetch sessions that are kept; idle ones make room for new ones.", at_least(0)),
    ConfigKey("fetch.max.bytes", INT, 57_671_680, MEDIUM,
        "What one answer to a fetch returns at most, a first batch that is larger excepted.", at_least(1024)),
)
# fmt: on
