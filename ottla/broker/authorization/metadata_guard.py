"""Metadata: DESCRIBE on each topic, CREATE on those that would be created. Denied requests do not disclose whether a topic exists.

all topics          those that may not be described are left out
named               TOPIC_AUTHORIZATION_FAILED with the name, whether or not there is such a topic
by id               TOPIC_AUTHORIZATION_FAILED with the id, for ids are no secret (KIP-516); the name is kept back
to be created       CREATE on the cluster or on the topic, else TOPIC_AUTHORIZATION_FAILED
"""

from __future__ import annotations

from functools import partial

from ottla.broker.authorization.answers import operations_on_cluster
from ottla.broker.authorization.guard import HandlerOf
from ottla.broker.components import BrokerComponents
from ottla.broker.encoded_metadata import EncodedMetadata, Metadata
from ottla.broker.handlers.metadata import asks_for_all, check
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from ottla.protocol.primitives import ZERO_UUID
from ottla.server.authorization.operations import CLUSTER, CLUSTER_NAME, CREATE, DESCRIBE, TOPIC
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer, then


def guard(
    broker: BrokerComponents, handler: HandlerOf[MetadataRequest, Metadata]
) -> HandlerOf[MetadataRequest, Metadata]:
    def metadata(request: MetadataRequest, context: RequestContext) -> Answer[Metadata]:
        check(request, context.api_version)
        if asks_for_all(request, context.api_version):
            return then(handler(request, context), partial(_only_visible, broker, request, context))
        rejected = _take_out_rejected(broker, request, context)
        if not request.topics and context.api_version == 0:
            # An empty list would request all topics; a single impossible name requests the brokers alone.
            request.topics = [MetadataRequestTopic(name="")]
            return then(handler(request, context), partial(_only_rejected, rejected))
        return then(handler(request, context), partial(_merge, broker, request, context, rejected))

    return metadata


def _only_rejected(rejected: list[MetadataResponseTopic], answer: MetadataResponse) -> MetadataResponse:
    answer.topics = rejected
    return answer


def _only_visible(
    broker: BrokerComponents, request: MetadataRequest, context: RequestContext, answer: Metadata
) -> Metadata:
    allows = broker.authorizer.allows
    if isinstance(answer, EncodedMetadata):
        visible = answer.only(lambda name: allows(context, DESCRIBE, TOPIC, name))
        _add_authorized_operations(broker, request, context, visible.head)
        return visible
    answer.topics = [topic for topic in answer.topics if allows(context, DESCRIBE, TOPIC, topic.name or "")]
    return _add_authorized_operations(broker, request, context, answer)


def _merge(
    broker: BrokerComponents,
    request: MetadataRequest,
    context: RequestContext,
    rejected: list[MetadataResponseTopic],
    answer: Metadata,
) -> Metadata:
    if isinstance(answer, EncodedMetadata):
        _add_authorized_operations(broker, request, context, answer.head)
        return answer.plus(rejected, context.api_version)
    _add_authorized_operations(broker, request, context, answer)
    answer.topics.extend(rejected)
    return answer


def _add_authorized_operations(
    broker: BrokerComponents, request: MetadataRequest, context: RequestContext, answer: MetadataResponse
) -> MetadataResponse:
    if request.include_cluster_authorized_operations:
        answer.cluster_authorized_operations = operations_on_cluster(broker, context)
    if request.include_topic_authorized_operations:
        for topic in answer.topics:
            if topic.name is not None:
                operations = broker.authorizer.authorized_operations(context, TOPIC, topic.name)
                topic.topic_authorized_operations = operations
    return answer


def _take_out_rejected(
    broker: BrokerComponents, request: MetadataRequest, context: RequestContext
) -> list[MetadataResponseTopic]:
    may_create = request.allow_auto_topic_creation and broker.configs["auto.create.topics.enable"]
    rejected: dict[str | bytes, MetadataResponseTopic] = {}
    kept = []
    for topic in request.topics or ():
        answer = _rejection(broker, context, topic, may_create)
        if answer is None:
            kept.append(topic)
        else:
            rejected[answer.name or answer.topic_id] = answer
    request.topics = kept
    return list(rejected.values())


def _rejection(
    broker: BrokerComponents, context: RequestContext, topic: MetadataRequestTopic, may_create: bool
) -> MetadataResponseTopic | None:
    authorizer, topics = broker.authorizer, broker.metadata.image.topics
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if topic.topic_id != ZERO_UUID:
        image = topics.by_id(topic.topic_id)
        if image is None or authorizer.allows(context, DESCRIBE, TOPIC, image.name):
            return None
        return MetadataResponseTopic(error_code=error, name=None, topic_id=topic.topic_id)
    name = topic.name
    if name is None:
        return None
    if not authorizer.allows(context, DESCRIBE, TOPIC, name):
        return MetadataResponseTopic(error_code=error, name=name)
    if (
        may_create
        and name not in topics
        and not authorizer.allows(context, CREATE, CLUSTER, CLUSTER_NAME)
        and not authorizer.allows(context, CREATE, TOPIC, name)
    ):
        return MetadataResponseTopic(error_code=error, name=name, is_internal=name in broker.internal_topics)
    return None
