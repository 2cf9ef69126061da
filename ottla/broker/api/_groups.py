"""The handlers of group APIs share this: the client's fields, the kinds of groups that the cluster has, and how groups are shown.

Errors:
    UNSUPPORTED_VERSION  the kind of groups is not enabled, or its feature is not finalized
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from ipaddress import IPv6Address
from typing import Protocol, TypeVar

from ottla.broker.components import BrokerComponents
from ottla.broker.groups.group_descriptions import Description
from ottla.broker.groups.group_metadata_manager import Client
from ottla.broker.groups.state.modern_group import AnyModernGroup
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.features import GROUP_VERSION, SHARE_VERSION, STREAMS_VERSION
from ottla.server.authorization.operations import DESCRIBE, GROUP, TOPIC
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer, then


class DescribeRequest(Protocol):
    group_ids: list[str]
    include_authorized_operations: bool


class Described(Protocol):
    error_code: int
    group_id: str
    authorized_operations: int


G = TypeVar("G", bound=AnyModernGroup)
GroupT = TypeVar("GroupT", bound=Described)


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


def check_share_groups(broker: BrokerComponents) -> None:
    """KafkaError UNSUPPORTED_VERSION before share.version is finalized at 1."""
    if not has_share_groups(broker):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


def has_share_groups(broker: BrokerComponents) -> bool:
    return broker.metadata.image.features.level(SHARE_VERSION) >= 1


def describe_modern_groups(
    broker: BrokerComponents,
    context: RequestContext,
    request: DescribeRequest,
    description: Description[G, GroupT],
) -> Answer[list[GroupT]]:
    """Describe groups of a kind that has an API of its own; one with a topic that the client may not DESCRIBE is a row with an error."""

    def shape(groups: list[GroupT]) -> list[GroupT]:
        if broker.authorizer.enabled:
            allows = partial(broker.authorizer.allows, context, DESCRIBE, TOPIC)
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            groups = [
                group
                if all(map(allows, description.topics(group)))
                else description.failed(error, description.hidden, group.group_id)
                for group in groups
            ]
        if request.include_authorized_operations:
            add_authorized_operations(broker, context, groups)
        return groups

    return then(broker.groups.describe_modern(request.group_ids, description), shape)


def add_authorized_operations(broker: BrokerComponents, context: RequestContext, groups: Iterable[Described]) -> None:
    """What the client may do with each group (KIP-430)."""
    for group in groups:
        if not group.error_code:
            group.authorized_operations = broker.authorizer.authorized_operations(context, GROUP, group.group_id)
