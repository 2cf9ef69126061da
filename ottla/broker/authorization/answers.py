"""Answers that depend on the principal: its authorized operations (KIP-430), and the groups and transactions that it may describe."""

from __future__ import annotations

from ottla.broker.components import BrokerComponents
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.protocol.messages.describe_delegation_token import DescribedDelegationToken, DescribeDelegationTokenResponse
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.protocol.messages.describe_transactions import DescribeTransactionsResponse
from ottla.protocol.messages.find_coordinator import FindCoordinatorResponse
from ottla.protocol.messages.list_groups import ListGroupsResponse
from ottla.protocol.messages.list_transactions import ListTransactionsResponse
from ottla.server.authorization.operations import (
    CLUSTER,
    CLUSTER_NAME,
    DELEGATION_TOKEN,
    DESCRIBE,
    DESCRIBE_TOKENS,
    GROUP,
    TOPIC,
    TRANSACTIONAL_ID,
    USER,
)
from ottla.server.network.context import RequestContext


def operations_on_cluster(broker: BrokerComponents, context: RequestContext) -> int:
    """Returns an empty response for a caller that may not describe the cluster."""
    authorizer = broker.authorizer
    if not authorizer.allows(context, DESCRIBE, CLUSTER, CLUSTER_NAME):
        return 0
    return authorizer.authorized_operations(context, CLUSTER, CLUSTER_NAME)


def cluster_operations(
    broker: BrokerComponents, request: DescribeClusterRequest, context: RequestContext, answer: DescribeClusterResponse
) -> None:
    if request.include_cluster_authorized_operations:
        answer.cluster_authorized_operations = operations_on_cluster(broker, context)


def group_operations(
    broker: BrokerComponents, request: DescribeGroupsRequest, context: RequestContext, answer: DescribeGroupsResponse
) -> None:
    if request.include_authorized_operations:
        for group in answer.groups:
            if not group.error_code:
                group.authorized_operations = broker.authorizer.authorized_operations(context, GROUP, group.group_id)


def only_visible_groups(
    broker: BrokerComponents, request: object, context: RequestContext, answer: ListGroupsResponse
) -> None:
    """A principal with DESCRIBE on the cluster sees all groups."""
    authorizer = broker.authorizer
    if not authorizer.allows(context, DESCRIBE, CLUSTER, CLUSTER_NAME):
        answer.groups = [g for g in answer.groups if authorizer.allows(context, DESCRIBE, GROUP, g.group_id)]


def only_visible_topics(
    broker: BrokerComponents, request: object, context: RequestContext, answer: DescribeTransactionsResponse
) -> None:
    allows = broker.authorizer.allows
    for state in answer.transaction_states:
        state.topics = [topic for topic in state.topics if allows(context, DESCRIBE, TOPIC, topic.topic)]


def only_visible_transactions(
    broker: BrokerComponents, request: object, context: RequestContext, answer: ListTransactionsResponse
) -> None:
    allows = broker.authorizer.allows
    answer.transaction_states = [
        state
        for state in answer.transaction_states
        if allows(context, DESCRIBE, TRANSACTIONAL_ID, state.transactional_id)
    ]


def without_messages(
    broker: BrokerComponents, request: object, context: RequestContext, answer: FindCoordinatorResponse
) -> None:
    """Kafka names no reason where it names several coordinators."""
    for coordinator in answer.coordinators:
        if coordinator.error_message is None:
            coordinator.error_message = ""


def only_visible_tokens(
    broker: BrokerComponents, request: object, context: RequestContext, answer: DescribeDelegationTokenResponse
) -> None:
    """Owner, requester and renewers see a token, and who may DESCRIBE it, or DESCRIBE_TOKENS of its owner (KIP-373)."""
    client = str(context.connection.principal)
    tokens = broker.metadata.image.delegation_tokens.tokens

    def visible(described: DescribedDelegationToken) -> bool:
        token = tokens[described.token_id]
        allows = broker.authorizer.allows
        return (
            client in token.seen_by
            or allows(context, DESCRIBE, DELEGATION_TOKEN, token.token_id)
            or allows(context, DESCRIBE_TOKENS, USER, token.owner)
        )

    answer.tokens = [token for token in answer.tokens if visible(token)]
