"""InitProducerId: WRITE on the transactional id; without one, IDEMPOTENT_WRITE on the cluster or WRITE on any topic (KIP-679)."""

from __future__ import annotations

from ottla.broker.authorization.guard import HandlerOf
from ottla.broker.components import BrokerComponents
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.server.authorization.operations import (
    CLUSTER,
    CLUSTER_NAME,
    IDEMPOTENT_WRITE,
    TOPIC,
    TRANSACTIONAL_ID,
    TWO_PHASE_COMMIT,
    WRITE,
)
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer


def guard(
    broker: BrokerComponents, handler: HandlerOf[InitProducerIdRequest, InitProducerIdResponse]
) -> HandlerOf[InitProducerIdRequest, InitProducerIdResponse]:
    def init_producer_id(request: InitProducerIdRequest, context: RequestContext) -> Answer[InitProducerIdResponse]:
        _require(broker, request, context)
        return handler(request, context)

    return init_producer_id


def _require(broker: BrokerComponents, request: InitProducerIdRequest, context: RequestContext) -> None:
    authorizer = broker.authorizer
    transactional_id = request.transactional_id
    if transactional_id is None:
        if not authorizer.allows(context, IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME) and not authorizer.allows_any(
            context, WRITE, TOPIC
        ):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return
    operations = (WRITE, TWO_PHASE_COMMIT) if request.enable_2pc else (WRITE,)
    if not all(authorizer.allows(context, op, TRANSACTIONAL_ID, transactional_id) for op in operations):
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
