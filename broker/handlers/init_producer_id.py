"""InitProducerId (22) for idempotent producers: a fresh id with epoch 0. Nothing is remembered here about it.

With a transactional id the answer is TRANSACTIONAL_ID_AUTHORIZATION_FAILED until there are transactions: both the Java client and
librdkafka take it as fatal and raise from init_transactions() at once, where retriable or unknown errors would keep them
trying until their own timeout.

v2 flexible · v3 producer_id and epoch to resume with (KIP-360; an idempotent producer just gets a new id) · v6 two-phase commit, unstable.
"""

from __future__ import annotations

from broker.parts import BrokerParts
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from server.network.context import RequestContext
from server.network.deferred import Deferred


def handle(broker: BrokerParts, request: InitProducerIdRequest, context: RequestContext) -> Deferred:
    if request.transactional_id is not None:
        if not request.transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "an empty transactional id")
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "this cluster does not serve transactions yet"
        )
    if (request.producer_id < 0) != (request.producer_epoch < 0):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "producer_id and producer_epoch go together")
    deferred = Deferred()

    def receive(producer_id: int, error: ErrorCode) -> None:
        deferred.complete(
            InitProducerIdResponse(error_code=error, producer_id=producer_id, producer_epoch=-1 if error else 0)
        )

    broker.producer_ids.take(receive)
    return deferred
