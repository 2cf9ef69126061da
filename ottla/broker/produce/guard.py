"""Produce: WRITE on each topic, and on the transactional id where records belong to a transaction. A hot path."""

from __future__ import annotations

import copy

from ottla.broker.authorization.guard import HandlerOf
from ottla.broker.components import BrokerComponents
from ottla.broker.produce.prepared import ProduceAnswer
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.produce import ProduceRequest, ProduceResponse, TopicProduceData
from ottla.protocol.records.batch import ATTRIBUTES_LOW_AT, TRANSACTIONAL_BIT
from ottla.server.authorization.operations import TOPIC, TRANSACTIONAL_ID, WRITE
from ottla.server.network.context import RequestContext
from ottla.server.network.error_reply import error_reply
from ottla.server.network.reply import then


def guard(
    broker: BrokerComponents, handler: HandlerOf[ProduceRequest, ProduceResponse | None]
) -> HandlerOf[ProduceRequest, ProduceResponse | None]:
    allows = broker.authorizer.allows
    topic_name = broker.metadata.topic_name

    def is_allowed(topic: TopicProduceData, context: RequestContext) -> bool:
        name = topic.name or topic_name(topic.topic_id)
        return not name or allows(context, WRITE, TOPIC, name)

    def produce(request: ProduceRequest, context: RequestContext) -> ProduceAnswer:
        if any(_is_transactional(topic) for topic in request.topic_data):
            _require_transactional_id(broker, request, context)
        for topic in request.topic_data:
            if not is_allowed(topic, context):
                break
        else:
            return handler(request, context)
        only_rejected = copy.copy(request)
        only_rejected.topic_data = [topic for topic in request.topic_data if not is_allowed(topic, context)]
        request.topic_data = [topic for topic in request.topic_data if is_allowed(topic, context)]
        error = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if request.acks == 0:
            if request.topic_data:
                handler(request, context)
            context.connection.close("a produce request with acks=0 failed")
            return None
        rejection: ProduceResponse = error_reply(ApiKey.PRODUCE, context.api_version, only_rejected, error)
        if not request.topic_data:
            return rejection

        def merge(answer: ProduceResponse | None) -> ProduceResponse | None:
            if answer is not None:
                answer.responses.extend(rejection.responses)
            return answer

        return then(handler(request, context), merge)

    return produce


def _is_transactional(topic: TopicProduceData) -> bool:
    for partition in topic.partition_data:
        records = partition.records
        if records is not None and len(records) > ATTRIBUTES_LOW_AT and records[ATTRIBUTES_LOW_AT] & TRANSACTIONAL_BIT:
            return True
    return False


def _require_transactional_id(broker: BrokerComponents, request: ProduceRequest, context: RequestContext) -> None:
    transactional_id = request.transactional_id
    if transactional_id is None or not broker.authorizer.allows(context, WRITE, TRANSACTIONAL_ID, transactional_id):
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
