"""OffsetCommit (8): store a group's offsets. A hot path: consumers with auto-commit send one every few seconds each.

Topics and partitions that do not exist are answered here; the rest goes to the coordinator. v5 no retention time
v6 leader epoch · v7 group_instance_id · v9 GROUP_ID_NOT_FOUND · v10 topic ids for names: UNKNOWN_TOPIC_ID.

Errors:
    UNKNOWN_TOPIC_ID            no topic has the id (v10)
    UNKNOWN_TOPIC_OR_PARTITION  the topic or the partition does not exist
"""

from __future__ import annotations

from ottla.broker.components import BrokerComponents
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer, then

TOPIC_IDS_SINCE = 10


def handle(
    broker: BrokerComponents, request: OffsetCommitRequest, context: RequestContext
) -> Answer[OffsetCommitResponse]:
    unknown = _take_out_unknown(broker, request, context.api_version >= TOPIC_IDS_SINCE)
    if unknown and not request.topics:
        return OffsetCommitResponse(topics=unknown)
    answer = broker.groups.commit_offsets(request, context.api_version)
    if unknown:
        answer = then(answer, lambda response: _merge(unknown, response))
    return answer


def _take_out_unknown(
    broker: BrokerComponents, request: OffsetCommitRequest, by_id: bool
) -> list[OffsetCommitResponseTopic]:
    """Remove unknown topics and partitions from the request and return their responses; the others get name and id."""
    topics = broker.metadata.image.topics
    unknown: list[OffsetCommitResponseTopic] = []
    kept: list[OffsetCommitRequestTopic] = []
    for topic in request.topics:
        image = topics.by_id(topic.topic_id) if by_id else topics.by_name(topic.name)
        if image is None:
            error = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            unknown.append(_failed(topic, [p.partition_index for p in topic.partitions], error))
            continue
        topic.name, topic.topic_id = image.name, image.id
        existing = image.partitions
        missing = [p.partition_index for p in topic.partitions if p.partition_index not in existing]
        if missing:
            unknown.append(_failed(topic, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            topic.partitions = [p for p in topic.partitions if p.partition_index in existing]
            if not topic.partitions:
                continue
        kept.append(topic)
    if unknown:
        request.topics = kept
    return unknown


def _failed(topic: OffsetCommitRequestTopic, partitions: list[int], error: ErrorCode) -> OffsetCommitResponseTopic:
    answers = [OffsetCommitResponsePartition(partition, error) for partition in partitions]
    return OffsetCommitResponseTopic(topic.name, topic.topic_id, answers)


def _merge(unknown: list[OffsetCommitResponseTopic], response: OffsetCommitResponse) -> OffsetCommitResponse:
    """One entry per topic, as clients look for it."""
    by_topic = {(topic.name, topic.topic_id): topic for topic in unknown}
    for topic in response.topics:
        known = by_topic.setdefault((topic.name, topic.topic_id), topic)
        if known is not topic:
            known.partitions.extend(topic.partitions)
    return OffsetCommitResponse(topics=list(by_topic.values()))
