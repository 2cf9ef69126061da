"""What OffsetCommit and TxnOffsetCommit have in common: topics and partitions that do not exist are not the coordinator's to answer.

Errors:
    UNKNOWN_TOPIC_ID            no topic has the id
    UNKNOWN_TOPIC_OR_PARTITION  the topic or the partition does not exist
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from ottla.broker.components import BrokerComponents
from ottla.protocol.errors import ErrorCode


class AnsweredTopic(Protocol):
    """A topic of either response."""

    name: str
    topic_id: bytes
    partitions: list[Any]


ResponseT = TypeVar("ResponseT", bound=AnsweredTopic)
#: Makes the response of a topic's partitions with an error.
Failed = Callable[[Any, Sequence[int], ErrorCode], ResponseT]


def take_out_unknown(
    broker: BrokerComponents, request: Any, failed: Failed[ResponseT], *, by_id: bool
) -> list[ResponseT]:
    """Remove unknown topics and partitions from the request and return their responses; the others get name and id."""
    topics = broker.metadata.image.topics
    unknown: list[ResponseT] = []
    kept = []
    for topic in request.topics:
        image = topics.by_id(topic.topic_id) if by_id else topics.by_name(topic.name)
        if image is None:
            error = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            unknown.append(failed(topic, [p.partition_index for p in topic.partitions], error))
            continue
        topic.name, topic.topic_id = image.name, image.id
        existing = image.partitions
        missing = [p.partition_index for p in topic.partitions if p.partition_index not in existing]
        if missing:
            unknown.append(failed(topic, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            topic.partitions = [p for p in topic.partitions if p.partition_index in existing]
        if topic.partitions or not missing:
            kept.append(topic)
    if unknown:
        request.topics = kept
    return unknown


def merged(unknown: Iterable[ResponseT], answered: Iterable[ResponseT]) -> list[ResponseT]:
    """One entry per topic, as clients look for it."""
    by_topic = {(topic.name, topic.topic_id): topic for topic in unknown}
    for topic in answered:
        known = by_topic.setdefault((topic.name, topic.topic_id), topic)
        if known is not topic:
            known.partitions.extend(topic.partitions)
    return list(by_topic.values())
