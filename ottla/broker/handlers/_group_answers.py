"""The handlers of group APIs share this: the client's fields, and whether the cluster has groups of a kind."""

from __future__ import annotations

from ipaddress import IPv6Address

from ottla.broker.components import BrokerComponents
from ottla.broker.groups.shard import Client
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.features import GROUP_VERSION, STREAMS_VERSION
from ottla.server.authorization.operations import DESCRIBE, TOPIC
from ottla.server.network.context import RequestContext


def client_of(broker: BrokerComponents, context: RequestContext) -> Client:
    """The client as group records and tools have it: Java prints an address as "/" and its digits, IPv6 in full."""
    host = context.connection.peer_host
    if ":" in host:
        host = ":".join(f"{int(part, 16):x}" for part in IPv6Address(host.partition("%")[0]).exploded.split(":"))

    def may_describe(topic: str) -> bool:
        return broker.authorizer.allows(context, DESCRIBE, TOPIC, topic)

    return Client(context.api_version, context.client_id or "", f"/{host}", may_describe)


def check_consumer_groups(broker: BrokerComponents) -> None:
    """KafkaError UNSUPPORTED_VERSION before group.version is finalized at 1, so that a cluster can still be downgraded."""
    _check_protocol(broker, "consumer", GROUP_VERSION)


def check_streams_groups(broker: BrokerComponents) -> None:
    """KafkaError UNSUPPORTED_VERSION before streams.version is finalized at 1."""
    _check_protocol(broker, "streams", STREAMS_VERSION)


def _check_protocol(broker: BrokerComponents, protocol: str, feature: str) -> None:
    enabled = broker.configs["group.coordinator.rebalance.protocols"]
    if protocol not in enabled or broker.metadata.image.features.level(feature) < 1:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
