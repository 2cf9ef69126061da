"""OffsetCommit (8): store a group's offsets. A hot path: consumers with auto-commit send one every few seconds each.

Topics and partitions that do not exist are answered here; the rest goes to the coordinator. v5 no retention time
v6 leader epoch · v7 group_instance_id · v9 GROUP_ID_NOT_FOUND · v10 topic ids for names: UNKNOWN_TOPIC_ID.

Errors:
    UNKNOWN_TOPIC_ID            no topic has the id (v10)
    UNKNOWN_TOPIC_OR_PARTITION  the topic or the partition does not exist
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.broker.api._committed_topics import merged, take_out_unknown
from ottla.broker.components import BrokerComponents
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
)
from ottla.protocol.messages.shared_structs import PartitionErrorCode
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer, then

TOPIC_IDS_SINCE = 10


def handle(
    broker: BrokerComponents, request: OffsetCommitRequest, context: RequestContext
) -> Answer[OffsetCommitResponse]:
    unknown = take_out_unknown(broker, request, _failed, by_id=context.api_version >= TOPIC_IDS_SINCE)
    if unknown and not request.topics:
        return OffsetCommitResponse(topics=unknown)
    answer = broker.groups.commit_offsets(request, context.api_version)
    if unknown:
        answer = then(answer, lambda response: OffsetCommitResponse(topics=merged(unknown, response.topics)))
    return answer


def _failed(topic: OffsetCommitRequestTopic, partitions: Sequence[int], error: ErrorCode) -> OffsetCommitResponseTopic:
    answers = [PartitionErrorCode(partition, error) for partition in partitions]
    return OffsetCommitResponseTopic(topic.name, topic.topic_id, answers)
