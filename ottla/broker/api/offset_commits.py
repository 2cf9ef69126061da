"""Offsets of groups are committed, by OffsetCommit or in a transaction. Topics and partitions that do not exist are answered
here, not by the coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ottla.broker.components import BrokerComponents
from ottla.broker.groups.group_coordinator_service import TOPIC as GROUP_METADATA_TOPIC
from ottla.broker.groups.group_coordinator_service import txn_commit_error
from ottla.broker.transactions.verify import Expectation, Operation, Verdicts, in_order
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
)
from ottla.protocol.messages.shared_structs import PartitionErrorCode
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponseTopic,
)
from ottla.server.network.context import Answer, RequestContext, then

#: A topic of either response.
TopicT = TypeVar("TopicT", OffsetCommitResponseTopic, TxnOffsetCommitResponseTopic)


def take_out_unknown(
    broker: BrokerComponents, request: Any, answered: Callable[[str, bytes, list[Any]], TopicT], *, by_id: bool
) -> list[TopicT]:
    """Remove unknown topics and partitions from the request and return their responses; the others get name and id."""
    topics = broker.metadata.image.topics
    unknown: list[TopicT] = []
    kept = []

    def fail(topic: Any, indexes: Iterable[int], error: ErrorCode) -> None:
        rows = [PartitionErrorCode(index, error) for index in indexes]
        unknown.append(answered(topic.name, topic.topic_id, rows))

    for topic in request.topics:
        image = topics.by_id(topic.topic_id) if by_id else topics.by_name(topic.name)
        if image is None:
            error = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            fail(topic, (p.partition_index for p in topic.partitions), error)
            continue
        topic.name, topic.topic_id = image.name, image.id
        existing = image.partitions
        missing = [p.partition_index for p in topic.partitions if p.partition_index not in existing]
        if missing:
            fail(topic, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            topic.partitions = [p for p in topic.partitions if p.partition_index in existing]
        if topic.partitions or not missing:
            kept.append(topic)
    if unknown:
        request.topics = kept
    return unknown


def merged(unknown: Iterable[TopicT], answered: Iterable[TopicT]) -> list[TopicT]:
    """Return one entry per topic: clients look for a single one."""
    by_topic = {(topic.name, topic.topic_id): topic for topic in unknown}
    for topic in answered:
        known = by_topic.setdefault((topic.name, topic.topic_id), topic)
        if known is not topic:
            known.partitions.extend(topic.partitions)
    return list(by_topic.values())


COMMIT_TOPIC_IDS_SINCE = 10


def offset_commit(
    broker: BrokerComponents, request: OffsetCommitRequest, context: RequestContext
) -> Answer[OffsetCommitResponse]:
    """OffsetCommit (8): store a group's offsets. A hot path: consumers with auto-commit send one every few seconds each.

    Topics and partitions that do not exist are answered here; the rest goes to the coordinator. v5 no retention time
    v6 leader epoch · v7 group_instance_id · v9 GROUP_ID_NOT_FOUND · v10 topic ids for names: UNKNOWN_TOPIC_ID.

    Errors:
        UNKNOWN_TOPIC_ID            no topic has the id (v10)
        UNKNOWN_TOPIC_OR_PARTITION  the topic or the partition does not exist
    """
    unknown = take_out_unknown(
        broker, request, OffsetCommitResponseTopic, by_id=context.api_version >= COMMIT_TOPIC_IDS_SINCE
    )
    if unknown and not request.topics:
        return OffsetCommitResponse(topics=unknown)
    answer = broker.groups.commit_offsets(request, context.api_version)
    if unknown:
        answer = then(answer, lambda response: OffsetCommitResponse(topics=merged(unknown, response.topics)))
    return answer


LOAD_IN_PROGRESS_SINCE = 2
ABORTABLE_SINCE = 4
ADDED_SINCE = 5
TXN_TOPIC_IDS_SINCE = 6

# The client gets the error of a group coordinator that is not ready, because the client does not know that the transaction
# coordinator is used.
VERIFICATION_ERRORS = {ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


def txn_offset_commit(
    broker: BrokerComponents, request: TxnOffsetCommitRequest, context: RequestContext
) -> Answer[TxnOffsetCommitResponse]:
    """TxnOffsetCommit (28): a group's offsets, which count when the transaction is committed.

    v2 leader epochs · v3 the member's identity, so that a fenced member cannot commit (KIP-447) · v4 TRANSACTION_ABORTABLE
    v5 the group's partition joins the transaction by itself (KIP-890) · v6 topic ids for names (KIP-1319).

    Errors:
        UNKNOWN_TOPIC_ID              no topic has the id (v6)
        UNKNOWN_TOPIC_OR_PARTITION    the topic or the partition does not exist
        NOT_COORDINATOR               the partition of the group's offsets is not led here
        COORDINATOR_LOAD_IN_PROGRESS  the transaction coordinator cannot be reached
        COORDINATOR_NOT_AVAILABLE     the same before v2
    """
    version = context.api_version
    unknown = take_out_unknown(broker, request, TxnOffsetCommitResponseTopic, by_id=version >= TXN_TOPIC_IDS_SINCE)
    request.topics = [topic for topic in request.topics if topic.partitions]
    if unknown and not request.topics:
        return TxnOffsetCommitResponse(topics=unknown)
    return then(_commit(broker, request, context), lambda answer: _shaped(answer, unknown, version))


def _commit(
    broker: BrokerComponents, request: TxnOffsetCommitRequest, context: RequestContext
) -> Answer[TxnOffsetCommitResponse]:
    """Commit the offsets. Their partition is part of the transaction, so its leader verifies it with the coordinator like any other."""
    tp = (GROUP_METADATA_TOPIC, broker.groups.partition_for(request.group_id))
    partition = broker.replicas.get(*tp)
    log = None if partition is None else partition.leader_log
    if log is None:
        return txn_commit_error(request, ErrorCode.NOT_COORDINATOR)
    producer_id, epoch = request.producer_id, request.producer_epoch
    if log.producers.has_open_transaction(producer_id, epoch):
        return broker.groups.commit_transactional_offsets(request)
    operation = _operation(context.api_version)
    expected = {tp: Expectation(log.producers, producer_id, epoch, 0, operation is Operation.ADDED)}
    timeout_ms = broker.groups.config.offsets_commit_timeout_ms
    verdicts = broker.transactions.verifier.admit(
        request.transactional_id, producer_id, epoch, expected, operation, timeout_ms
    )

    def go_on(verdicts: Verdicts) -> Answer[TxnOffsetCommitResponse]:
        error = verdicts[tp]
        if error:
            return txn_commit_error(request, VERIFICATION_ERRORS.get(error, error))
        return broker.groups.commit_transactional_offsets(request)

    return in_order(context, verdicts, go_on)


def _operation(version: int) -> Operation:
    if version >= ADDED_SINCE:
        return Operation.ADDED
    return Operation.ABORTABLE if version >= ABORTABLE_SINCE else Operation.EXPECTED


def _shaped(
    answer: TxnOffsetCommitResponse, unknown: list[TxnOffsetCommitResponseTopic], version: int
) -> TxnOffsetCommitResponse:
    """Return the response with one entry per topic; clients of v0 and v1 crash on COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)."""
    topics = merged(unknown, answer.topics)
    if version < LOAD_IN_PROGRESS_SINCE:
        for topic in topics:
            for partition in topic.partitions:
                if partition.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    partition.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return TxnOffsetCommitResponse(topics=topics)
