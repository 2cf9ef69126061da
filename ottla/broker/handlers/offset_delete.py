"""OffsetDelete (47): forget a group's offsets of partitions it is not subscribed to (KIP-496). One version, never flexible."""

from __future__ import annotations

from ottla.broker.components import BrokerComponents
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer, then


def handle(
    broker: BrokerComponents, request: OffsetDeleteRequest, context: RequestContext
) -> Answer[OffsetDeleteResponse]:
    unknown: dict[str, OffsetDeleteResponseTopic] = {}
    kept: list[OffsetDeleteRequestTopic] = []
    for topic in request.topics:
        image = broker.metadata.image.topics.by_name(topic.name)
        existing = () if image is None else image.partitions
        missing = [p.partition_index for p in topic.partitions if p.partition_index not in existing]
        if missing:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answers = [OffsetDeleteResponsePartition(index, error) for index in missing]
            unknown[topic.name] = OffsetDeleteResponseTopic(topic.name, answers)
        known = [p for p in topic.partitions if p.partition_index in existing]
        if known:
            kept.append(OffsetDeleteRequestTopic(topic.name, known))

    def merge(response: OffsetDeleteResponse) -> OffsetDeleteResponse:
        if response.error_code:
            return response
        for topic in response.topics:
            merged = unknown.setdefault(topic.name, topic)
            if merged is not topic:
                merged.partitions.extend(topic.partitions)
        response.topics = list(unknown.values())
        return response

    request.topics = kept
    answer = broker.groups.delete_offsets(request)
    return then(answer, merge) if unknown else answer
