"""OffsetDelete (47): forget a group's offsets of partitions it is not subscribed to (KIP-496). One version, never flexible.

DELETE on the group, READ on each topic. The coordinator is asked even if no topic is left.

Errors:
    UNKNOWN_TOPIC_OR_PARTITION  the topic or the partition does not exist
"""

from __future__ import annotations

from ottla.broker.authorization.checks import require, split
from ottla.broker.components import BrokerComponents
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestTopic, OffsetDeleteResponse
from ottla.protocol.messages.shared_structs import PartitionErrorCode, TopicPartitionErrors
from ottla.server.authorization.operations import DELETE, GROUP, READ, TOPIC
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer, then


def handle(
    broker: BrokerComponents, request: OffsetDeleteRequest, context: RequestContext
) -> Answer[OffsetDeleteResponse]:
    require(broker, context, DELETE, GROUP, request.group_id)
    failed: dict[str, TopicPartitionErrors] = {}

    def fail(name: str, indexes: list[int], error: ErrorCode) -> None:
        answers = [PartitionErrorCode(index, error) for index in indexes]
        failed.setdefault(name, TopicPartitionErrors(name)).partitions.extend(answers)

    kept: list[OffsetDeleteRequestTopic] = []
    allowed, denied = split(broker, context, READ, TOPIC, request.topics, lambda topic: topic.name)
    for topic in denied:
        fail(topic.name, [p.partition_index for p in topic.partitions], ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    for topic in allowed:
        image = broker.metadata.image.topics.by_name(topic.name)
        existing = () if image is None else image.partitions
        missing = [p.partition_index for p in topic.partitions if p.partition_index not in existing]
        if missing:
            fail(topic.name, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        known = [p for p in topic.partitions if p.partition_index in existing]
        if known:
            kept.append(OffsetDeleteRequestTopic(topic.name, known))

    def merge(response: OffsetDeleteResponse) -> OffsetDeleteResponse:
        if response.error_code:
            return response
        for topic in response.topics:
            merged = failed.setdefault(topic.name, topic)
            if merged is not topic:
                merged.partitions.extend(topic.partitions)
        response.topics = list(failed.values())
        return response

    request.topics = kept
    answer = broker.groups.delete_offsets(request)
    return then(answer, merge) if failed else answer
