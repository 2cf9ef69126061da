"""A group's committed offsets are read and forgotten."""

from __future__ import annotations

from functools import partial

from ottla.broker.api.groups import asker_of
from ottla.broker.authorization import require, split
from ottla.broker.components import BrokerComponents
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestTopic, OffsetDeleteResponse
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.protocol.messages.shared_structs import PartitionErrorCode, TopicPartitionErrors
from ottla.server.authorization.operations import DELETE, DESCRIBE, GROUP, READ, TOPIC
from ottla.server.network.context import Answer, RequestContext, gather, then

TOP_LEVEL_ERROR_SINCE = 2
GROUPS_SINCE = 8
TOPIC_IDS_SINCE = 10


def offset_fetch(
    broker: BrokerComponents, request: OffsetFetchRequest, context: RequestContext
) -> Answer[OffsetFetchResponse]:
    """OffsetFetch (9): a group's committed offsets; -1 where there is none, whether or not the partition exists.

    DESCRIBE on each group, and on each topic inside. A request for all topics gets those that the client may describe.

    v0 an error where there is no offset, as with ZooKeeper · v1 an error for each partition
    v2 a top-level error, null topics ask for all · v5 leader epoch · v7 require_stable (KIP-447) · v8 several groups (KIP-709)
    v9 member id and epoch (KIP-848) · v10 topic ids for names: UNKNOWN_TOPIC_ID.

    Errors:
        UNKNOWN_TOPIC_ID            no topic has the id (v10)
        UNKNOWN_TOPIC_OR_PARTITION  the group has no offset there (v0)
    """
    version = context.api_version
    groups = request.groups if version >= GROUPS_SINCE else [_only_group(request)]
    answers = [_fetch(broker, context, group, request.require_stable) for group in groups]

    def shape(fetched: list[OffsetFetchResponseGroup]) -> OffsetFetchResponse:
        if version >= GROUPS_SINCE:
            return OffsetFetchResponse(groups=fetched)
        return _of_one_group(request, fetched[0], version)

    return gather(answers, shape)


def _only_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def _fetch(
    broker: BrokerComponents, context: RequestContext, group: OffsetFetchRequestGroup, require_stable: bool
) -> Answer[OffsetFetchResponseGroup]:
    if not broker.authorizer.allows(context, DESCRIBE, GROUP, group.group_id):
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    by_id = context.api_version >= TOPIC_IDS_SINCE
    if group.topics is None:
        fetched = broker.groups.fetch_offsets(group, require_stable)
        if broker.authorizer.enabled:
            fetched = then(fetched, partial(_only_visible, broker, context))
        return then(fetched, partial(_with_ids, broker)) if by_id else fetched
    topics = broker.metadata.image.topics
    failed: list[OffsetFetchResponseTopics] = []
    known: list[OffsetFetchRequestTopics] = []
    for topic in group.topics:
        image = topics.by_id(topic.topic_id) if by_id else topics.by_name(topic.name)
        if image is not None:
            topic.name, topic.topic_id = image.name, image.id
        elif by_id:
            failed.append(_failed(topic, ErrorCode.UNKNOWN_TOPIC_ID))
            continue
        known.append(topic)
    group.topics, denied = split(broker, context, DESCRIBE, TOPIC, known, lambda topic: topic.name)
    failed += [_failed(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for topic in denied]
    fetched = broker.groups.fetch_offsets(group, require_stable)
    return then(fetched, partial(_merge, failed)) if failed else fetched


def _failed(topic: OffsetFetchRequestTopics, error: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[OffsetFetchResponsePartitions(index, -1, -1, "", error) for index in topic.partition_indexes],
    )


def _only_visible(
    broker: BrokerComponents, context: RequestContext, fetched: OffsetFetchResponseGroup
) -> OffsetFetchResponseGroup:
    fetched.topics, _ = split(broker, context, DESCRIBE, TOPIC, fetched.topics, lambda topic: topic.name)
    return fetched


def _merge(failed: list[OffsetFetchResponseTopics], fetched: OffsetFetchResponseGroup) -> OffsetFetchResponseGroup:
    if not fetched.error_code:
        fetched.topics.extend(failed)
    return fetched


def _with_ids(broker: BrokerComponents, fetched: OffsetFetchResponseGroup) -> OffsetFetchResponseGroup:
    """Replace names by ids for all topics of the group; a topic that has no id any more is left out."""
    kept = []
    for topic in fetched.topics:
        image = broker.metadata.image.topics.by_name(topic.name)
        if image is not None:
            topic.topic_id = image.id
            kept.append(topic)
    fetched.topics = kept
    return fetched


def _none_error(code: int, committed_offset: int, version: int) -> int:
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if not version and not code and committed_offset < 0 else code


def _of_one_group(request: OffsetFetchRequest, group: OffsetFetchResponseGroup, version: int) -> OffsetFetchResponse:
    error = group.error_code
    if error and version < TOP_LEVEL_ERROR_SINCE:
        topics = [
            OffsetFetchResponseTopic(
                topic.name,
                [OffsetFetchResponsePartition(index, -1, -1, "", error) for index in topic.partition_indexes],
            )
            for topic in request.topics or ()
        ]
        return OffsetFetchResponse(topics=topics)
    topics = [
        OffsetFetchResponseTopic(
            topic.name,
            [
                OffsetFetchResponsePartition(
                    p.partition_index,
                    p.committed_offset,
                    p.committed_leader_epoch,
                    p.metadata,
                    _none_error(p.error_code, p.committed_offset, version),
                )
                for p in topic.partitions
            ],
        )
        for topic in group.topics
    ]
    return OffsetFetchResponse(topics=topics, error_code=error)


def offset_delete(
    broker: BrokerComponents, request: OffsetDeleteRequest, context: RequestContext
) -> Answer[OffsetDeleteResponse]:
    """OffsetDelete (47): forget a group's offsets of partitions it is not subscribed to (KIP-496). One version, never flexible.

    DELETE on the group, READ on each topic. The coordinator is asked even if no topic is left.

    Errors:
        UNKNOWN_TOPIC_OR_PARTITION  the topic or the partition does not exist
    """
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
    answer = broker.groups.delete_offsets(request, asker_of(context))
    return then(answer, merge) if failed else answer
