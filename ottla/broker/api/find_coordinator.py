"""FindCoordinator (10): the broker that leads the partition of the internal topic where a key lives.

The first request for a group's coordinator causes the creation of `__consumer_offsets`, the first one for a transactional id's
that of `__transaction_state`. The response waits a moment for the topic, because a client that gets COORDINATOR_NOT_AVAILABLE
sleeps for its retry backoff, which is longer. If the creation takes longer than that moment, the client gets the error.

DESCRIBE on the group or the transactional id; a broker that asks for share groups needs CLUSTER_ACTION.

v0 groups only · v1 key_type · v4 several keys (KIP-699) · v6 share groups (KIP-932).
The key of a share partition is group:topicId:partition; only brokers ask for it, and only since v6.

Errors:
    COORDINATOR_NOT_AVAILABLE  the partition of the key has no leader yet
    INVALID_REQUEST            the key type is unknown or not served, or the key of a share partition is malformed
"""

from __future__ import annotations

from ottla.broker.api.groups import has_share_groups
from ottla.broker.authorization import require
from ottla.broker.components import BrokerComponents
from ottla.broker.share.share_state import parse_coordinator_key
from ottla.controller.metadata.topic_names import GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.shared_structs import NodeEndpoint
from ottla.server.authorization import operations
from ottla.server.authorization.operations import AUTHORIZATION_ERRORS, CLUSTER, CLUSTER_ACTION, CLUSTER_NAME, DESCRIBE
from ottla.server.network.context import Answer, Reply, RequestContext

GROUP, TRANSACTION, SHARE = KEY_TYPES = 0, 1, 2
#: The resources that a client has to be allowed to DESCRIBE.
RESOURCES = {GROUP: operations.GROUP, TRANSACTION: operations.TRANSACTIONAL_ID}
TOPICS = {GROUP: GROUP_METADATA_TOPIC, TRANSACTION: TRANSACTION_STATE_TOPIC, SHARE: SHARE_GROUP_STATE_TOPIC}
SHARE_SINCE = 6
BATCHED_SINCE = 4
CREATE_WAIT_MS = 1_000
NO_NODE = NodeEndpoint(-1, "", -1, None)


def handle(
    broker: BrokerComponents, request: FindCoordinatorRequest, context: RequestContext
) -> Answer[FindCoordinatorResponse]:
    if request.key_type == SHARE and context.api_version >= SHARE_SINCE:
        require(broker, context, CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)
    keys = request.coordinator_keys if context.api_version >= BATCHED_SINCE else [request.key]
    topic = TOPICS.get(request.key_type)
    is_served = request.key_type != SHARE or _finds_share(broker, context)
    is_allowed = any(_may_find(broker, request.key_type, key, context) for key in keys)
    if topic is None or topic in broker.metadata.image.topics or not is_served or not is_allowed:
        return answer(broker, request, context)
    reply: Reply[FindCoordinatorResponse] = Reply()
    reply.on_cancel = broker.topic_creation.create(
        [topic], CREATE_WAIT_MS, lambda: reply.complete(answer(broker, request, context))
    )
    return reply


def answer(
    broker: BrokerComponents, request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    if context.api_version >= BATCHED_SINCE:
        coordinators = []
        for key in request.coordinator_keys:
            error, node = _find(broker, request.key_type, key, context)
            message = error.message if request.key_type not in KEY_TYPES else ""
            coordinators.append(Coordinator(key, node.node_id, node.host, node.port, error, message))
        return FindCoordinatorResponse(coordinators=coordinators)
    error, node = _find(broker, request.key_type, request.key, context)
    return FindCoordinatorResponse(
        error_code=error,
        # Without a message, Kafka sends the name of the error.
        error_message=error.message if error else error.name,
        node_id=node.node_id,
        host=node.host,
        port=node.port,
    )


def _find(broker: BrokerComponents, key_type: int, key: str, context: RequestContext) -> tuple[ErrorCode, NodeEndpoint]:
    if not _may_find(broker, key_type, key, context):
        return AUTHORIZATION_ERRORS[RESOURCES[key_type]], NO_NODE
    if key_type == GROUP:
        partition = broker.groups.partition_for(key)
    elif key_type == TRANSACTION:
        partition = broker.transactions.coordinator.partition_for(key)
    elif key_type == SHARE and _finds_share(broker, context):
        try:
            partition = broker.share_coordinator.partition_for(parse_coordinator_key(key).coordinator_key)
        except ValueError:
            return ErrorCode.INVALID_REQUEST, NO_NODE
    else:
        return ErrorCode.INVALID_REQUEST, NO_NODE
    leader, _ = broker.metadata.leader_and_epoch(TOPICS[key_type], partition)
    node = broker.metadata.endpoint(leader, context) if leader >= 0 else None
    if node is None:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, NO_NODE
    return ErrorCode.NONE, node


def _may_find(broker: BrokerComponents, key_type: int, key: str, context: RequestContext) -> bool:
    return key_type not in RESOURCES or broker.authorizer.allows(context, DESCRIBE, RESOURCES[key_type], key)


def _finds_share(broker: BrokerComponents, context: RequestContext) -> bool:
    return context.api_version >= SHARE_SINCE and has_share_groups(broker)
