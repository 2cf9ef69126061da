"""OffsetFetch: DESCRIBE on each group, and on each topic inside. A request for all topics gets those that its principal may describe."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ottla.broker.authorization.guard import HandlerOf
from ottla.broker.components import BrokerComponents
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.server.authorization.operations import DESCRIBE, GROUP, TOPIC
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer, then

GROUPS_SINCE = 8
REJECTED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def guard(
    broker: BrokerComponents, handler: HandlerOf[OffsetFetchRequest, OffsetFetchResponse]
) -> HandlerOf[OffsetFetchRequest, OffsetFetchResponse]:
    def offset_fetch(request: OffsetFetchRequest, context: RequestContext) -> Answer[OffsetFetchResponse]:
        if context.api_version >= GROUPS_SINCE:
            return _Groups(broker, context).fetch(handler, request)
        return _fetch_one(broker, handler, request, context)

    return offset_fetch


def _may_describe(broker: BrokerComponents, context: RequestContext, topic: Any) -> bool:
    name = topic.name or broker.metadata.topic_name(getattr(topic, "topic_id", b""))
    return not name or broker.authorizer.allows(context, DESCRIBE, TOPIC, name)


# -- Up to v7: one group ---------------------------------------------------------------------------------------------


def _fetch_one(
    broker: BrokerComponents,
    handler: HandlerOf[OffsetFetchRequest, OffsetFetchResponse],
    request: OffsetFetchRequest,
    context: RequestContext,
) -> Answer[OffsetFetchResponse]:
    if not broker.authorizer.allows(context, DESCRIBE, GROUP, request.group_id):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    visible = partial(_may_describe, broker, context)
    rejected = []
    if request.topics is not None:
        for topic in request.topics:
            if not visible(topic):
                partitions = [OffsetFetchResponsePartition(i, -1, -1, "", REJECTED) for i in topic.partition_indexes]
                rejected.append(OffsetFetchResponseTopic(name=topic.name, partitions=partitions))
        request.topics = [topic for topic in request.topics if visible(topic)]

    def merge(answer: OffsetFetchResponse) -> OffsetFetchResponse:
        if not answer.error_code:
            answer.topics = [topic for topic in answer.topics if visible(topic)] + rejected
        return answer

    return then(handler(request, context), merge)


# -- From v8 on: several ---------------------------------------------------------------------------------------------


class _Groups:
    """The groups of one request that are allowed, and the errors to add to the response."""

    def __init__(self, broker: BrokerComponents, context: RequestContext) -> None:
        self._broker = broker
        self._context = context
        self._visible = partial(_may_describe, broker, context)
        #: In the request's order; None where the handler has to say.
        self._answers: list[OffsetFetchResponseGroup | None] = []
        self._rejected: list[list[OffsetFetchResponseTopics]] = []

    def fetch(
        self, handler: HandlerOf[OffsetFetchRequest, OffsetFetchResponse], request: OffsetFetchRequest
    ) -> Answer[OffsetFetchResponse]:
        kept = []
        for group in request.groups:
            if self._broker.authorizer.allows(self._context, DESCRIBE, GROUP, group.group_id):
                self._answers.append(None)
                self._rejected.append(self._take_out_rejected(group))
                kept.append(group)
            else:
                error = ErrorCode.GROUP_AUTHORIZATION_FAILED
                self._answers.append(OffsetFetchResponseGroup(group_id=group.group_id, error_code=error))
        request.groups = kept
        return then(handler(request, self._context), self._merge)

    def _take_out_rejected(self, group: OffsetFetchRequestGroup) -> list[OffsetFetchResponseTopics]:
        if group.topics is None:
            return []
        rejected = [topic for topic in group.topics if not self._visible(topic)]
        group.topics = [topic for topic in group.topics if self._visible(topic)]
        return [
            OffsetFetchResponseTopics(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[OffsetFetchResponsePartitions(i, -1, -1, "", REJECTED) for i in topic.partition_indexes],
            )
            for topic in rejected
        ]

    def _merge(self, answer: OffsetFetchResponse) -> OffsetFetchResponse:
        fetched: Sequence[OffsetFetchResponseGroup] = answer.groups
        for group, rejected in zip(fetched, self._rejected, strict=True):
            if not group.error_code:
                group.topics = [topic for topic in group.topics if self._visible(topic)] + rejected
        left = iter(fetched)
        answer.groups = [next(left) if known is None else known for known in self._answers]
        return answer
