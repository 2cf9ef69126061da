"""InitProducerId (22): an id for an idempotent producer, or the next epoch of a transactional one, which fences the last.

WRITE on the transactional id; without one, IDEMPOTENT_WRITE on the cluster or WRITE on any topic (KIP-679).
Without a transactional id it is a fresh id with epoch 0, and nothing is remembered here about it.

v2 flexible · v3 producer_id and epoch to resume with (KIP-360; an idempotent producer just gets a new id) · v4 PRODUCER_FENCED
v5 TRANSACTION_ABORTABLE (KIP-890) · v6 two-phase commit, unstable (KIP-939).

Errors:
    INVALID_REQUEST  a producer id without an epoch, or an epoch without an id
"""

from __future__ import annotations

from ottla.broker.api._producer_fenced import as_known
from ottla.broker.authorization.checks import require
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
from ottla.server.network.reply import Answer, Reply, then

PRODUCER_FENCED_SINCE = 4


def handle(
    broker: BrokerComponents, request: InitProducerIdRequest, context: RequestContext
) -> Answer[InitProducerIdResponse]:
    _require(broker, request, context)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "producer_id and producer_epoch go together")
    if request.transactional_id is None:
        return _idempotent(broker)

    def shape(response: InitProducerIdResponse) -> InitProducerIdResponse:
        response.error_code = as_known(response.error_code, context.api_version, PRODUCER_FENCED_SINCE)
        return response

    return then(broker.transactions.coordinator.init_producer_id(request), shape)


def _require(broker: BrokerComponents, request: InitProducerIdRequest, context: RequestContext) -> None:
    if request.transactional_id is not None:
        for operation in (WRITE, TWO_PHASE_COMMIT) if request.enable_2pc else (WRITE,):
            require(broker, context, operation, TRANSACTIONAL_ID, request.transactional_id)
    elif not broker.authorizer.allows_any(context, WRITE, TOPIC):
        require(broker, context, IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME)


def _idempotent(broker: BrokerComponents) -> Reply[InitProducerIdResponse]:
    reply: Reply[InitProducerIdResponse] = Reply()

    def receive(producer_id: int, error: ErrorCode) -> None:
        reply.complete(
            InitProducerIdResponse(error_code=error, producer_id=producer_id, producer_epoch=-1 if error else 0)
        )

    broker.producer_ids.take(receive)
    return reply
