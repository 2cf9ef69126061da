"""Groups: the client that asks, the kinds of groups that the cluster has, how groups are shown, and the handlers of classic groups.

Errors:
    UNSUPPORTED_VERSION  the kind of groups is not enabled, or its feature is not finalized
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from ipaddress import IPv6Address
from typing import Protocol, TypeVar

from ottla.broker.authorization import split
from ottla.broker.components import BrokerComponents
from ottla.broker.groups.group_descriptions import Description
from ottla.broker.groups.group_metadata_manager import Client
from ottla.broker.groups.modern.modern_group import AnyModernGroup
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.features import GROUP_VERSION, SHARE_VERSION, STREAMS_VERSION
from ottla.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.server.authorization.operations import CLUSTER, CLUSTER_NAME, DESCRIBE, GROUP, TOPIC
from ottla.server.network.context import Answer, RequestContext, then
from ottla.server.story import Asker


class DescribeRequest(Protocol):
    group_ids: list[str]
    include_authorized_operations: bool


class Described(Protocol):
    error_code: int
    group_id: str
    authorized_operations: int


G = TypeVar("G", bound=AnyModernGroup)
GroupT = TypeVar("GroupT", bound=Described)


def host_of(context: RequestContext) -> str:
    """Return the client's host as group records and tools have it: Java prints an address as "/" and its digits, IPv6 in full."""
    host = context.connection.peer_host
    if ":" in host:
        host = ":".join(f"{int(part, 16):x}" for part in IPv6Address(host.partition("%")[0]).exploded.split(":"))
    return f"/{host}"


def asker_of(context: RequestContext) -> Asker:
    """Return the client, for the story of its request."""
    return Asker(context.client_id or "", host_of(context))


def client_of(broker: BrokerComponents, context: RequestContext) -> Client:
    """Return the client that is, or becomes, a member."""

    def may_describe(topic: str) -> bool:
        return broker.authorizer.allows(context, DESCRIBE, TOPIC, topic)

    return Client(context.api_version, context.client_id or "", host_of(context), may_describe)


def check_consumer_groups(broker: BrokerComponents) -> None:
    """Raise KafkaError UNSUPPORTED_VERSION before group.version is finalized at 1, so that a cluster can still be downgraded."""
    _check_protocol(broker, "consumer", GROUP_VERSION)


def check_streams_groups(broker: BrokerComponents) -> None:
    """Raise KafkaError UNSUPPORTED_VERSION before streams.version is finalized at 1."""
    _check_protocol(broker, "streams", STREAMS_VERSION)


def _check_protocol(broker: BrokerComponents, protocol: str, feature: str) -> None:
    enabled = broker.configs["group.coordinator.rebalance.protocols"]
    if protocol not in enabled or broker.metadata.image.features.level(feature) < 1:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


def check_share_groups(broker: BrokerComponents) -> None:
    """Raise KafkaError UNSUPPORTED_VERSION before share.version is finalized at 1."""
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
    """Add to each group the operations that the client may do with it (KIP-430)."""
    for group in groups:
        if not group.error_code:
            group.authorized_operations = broker.authorizer.authorized_operations(context, GROUP, group.group_id)


NULL_PROTOCOL_SINCE = 7


def join_group(
    broker: BrokerComponents, request: JoinGroupRequest, context: RequestContext
) -> Answer[JoinGroupResponse]:
    """JoinGroup (11): become a member of a classic group; the response waits until all members have joined.

    v0 has no rebalance timeout: the session timeout counts · v4 members come back with the id they are given (KIP-394)
    v5 group_instance_id (KIP-345) · v7 protocol_type, null protocol_name · v8 reason · v9 skip_assignment (KIP-814).
    """
    if context.api_version == 0:
        request.rebalance_timeout_ms = request.session_timeout_ms
    joined = broker.groups.join(request, client_of(broker, context))
    no_protocol = None if context.api_version >= NULL_PROTOCOL_SINCE else ""

    def shape(response: JoinGroupResponse) -> JoinGroupResponse:
        if not response.protocol_name:
            response.protocol_name = no_protocol
        return response

    return then(joined, shape)


def sync_group(
    broker: BrokerComponents, request: SyncGroupRequest, context: RequestContext
) -> Answer[SyncGroupResponse]:
    """SyncGroup (14): the leader sends the assignment, each member gets its part; the others wait for the leader.

    v3 group_instance_id (KIP-345) · v5 protocol type and name, both needed and compared (KIP-559).

    Errors:
        INCONSISTENT_GROUP_PROTOCOL  no protocol type or name, from v5 on
    """
    if context.api_version >= 5 and (request.protocol_type is None or request.protocol_name is None):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return broker.groups.sync(request, asker_of(context))


def leave_group(
    broker: BrokerComponents, request: LeaveGroupRequest, context: RequestContext
) -> Answer[LeaveGroupResponse]:
    """LeaveGroup (13): members go. v0-2 one, its error at the top · v3 many, also by instance id (KIP-345) · v5 reasons."""
    if context.api_version >= 3:
        return broker.groups.leave(request, asker_of(context))
    request.members = [MemberIdentity(request.member_id)]
    return then(broker.groups.leave(request, asker_of(context)), _of_one_member)


def _of_one_member(response: LeaveGroupResponse) -> LeaveGroupResponse:
    error = response.error_code or next((member.error_code for member in response.members), 0)
    return LeaveGroupResponse(error_code=error)


def list_groups(
    broker: BrokerComponents, request: ListGroupsRequest, context: RequestContext
) -> Answer[ListGroupsResponse]:
    """ListGroups (16): the groups coordinated here. v4 states and their filter (KIP-518) · v5 types and their filter (KIP-848).

    A client with DESCRIBE on the cluster sees all groups, any other those that it may DESCRIBE.
    """

    def shape(listed: tuple[ErrorCode, list[ListedGroup]]) -> ListGroupsResponse:
        error, groups = listed
        if not broker.authorizer.allows(context, DESCRIBE, CLUSTER, CLUSTER_NAME):
            groups, _ = split(broker, context, DESCRIBE, GROUP, groups, lambda group: group.group_id)
        return ListGroupsResponse(error_code=error, groups=groups)

    return then(broker.groups.list(request.states_filter, request.types_filter), shape)


ERROR_SINCE = 6


def describe_groups(
    broker: BrokerComponents, request: DescribeGroupsRequest, context: RequestContext
) -> Answer[DescribeGroupsResponse]:
    """DescribeGroups (15): state and members of classic groups.

    v3 authorized operations (KIP-430) · v4 instance ids · v6 unknown groups get GROUP_ID_NOT_FOUND (KIP-1043), before: state Dead.
    """

    def shape(groups: list[DescribedGroup]) -> DescribeGroupsResponse:
        if request.include_authorized_operations:
            add_authorized_operations(broker, context, groups)
        return DescribeGroupsResponse(groups=groups)

    return then(broker.groups.describe(request.groups, context.api_version >= ERROR_SINCE), shape)
