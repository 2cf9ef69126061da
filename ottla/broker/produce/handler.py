"""Produce (0): append to the partitions this broker leads. A hot path: one plain function, no await, no record decoded.

A batch whose topic needs the records, and that is too large for one turn of the loop, goes on in `prepared.py`.

WRITE is needed on each topic, and on the transactional id where records belong to a transaction.

    acks 0     no reply; if any partition failed the connection is closed, the only way to notify such a client
    acks 1     answered after the local append, and its flush if flush.messages asks for one
    acks -1    answered when the high watermark passed, or with REQUEST_TIMED_OUT after timeout_ms

v3 record batches v2 only · v7 zstd (KIP-110) · v5 log_start_offset · v8 record_errors and error_message · v9 flexible · v10 the current leader for
NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH (KIP-951) · v12 transactions join partitions implicitly (KIP-890) · v13 topic ids.

Errors:
    INVALID_REQUIRED_ACKS         acks is none of -1, 0 and 1
    INVALID_TOPIC_EXCEPTION       the topic is internal
    UNSUPPORTED_COMPRESSION_TYPE  zstd before v7
    KAFKA_STORAGE_ERROR           the log cannot be written
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial

from ottla.broker.components import BrokerComponents
from ottla.broker.metadata_cache import LEADER_MOVED
from ottla.broker.produce.prepared import (
    NONE_PREPARED,
    PreparedBatches,
    ProduceAnswer,
    append_prepared,
    joined,
    rest_of,
)
from ottla.broker.replication.delayed_produce import DelayedProduce, Wait
from ottla.broker.replication.partition import Partition
from ottla.broker.transactions.admission import (
    NO_REJECTIONS,
    Admission,
    PartitionRejections,
    drop_records,
    is_transactional,
    keep_records,
)
from ottla.broker.transactions.verify import Verdicts, in_order
from ottla.controller.metadata.topic_names import ADMIN_CLIENT_ID
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.protocol.messages.shared_structs import LeaderIdAndEpoch
from ottla.protocol.records.batch import ATTRIBUTES_LOW_AT, CODEC_MASK, HEADER_BYTES
from ottla.protocol.records.compression import CODECS, NO_COMPRESSION
from ottla.protocol.schema import ZERO_UUID, maker
from ottla.protocol.work import RECORDS_A_TURN, TooLong
from ottla.server.authorization.authorizer import Authorizer
from ottla.server.authorization.operations import TOPIC, TRANSACTIONAL_ID, WRITE
from ottla.server.network.context import Reply, RequestContext, then
from ottla.server.network.error_reply import error_reply
from ottla.storage.errors import StorageFailure
from ottla.storage.log_config import NEVER

#: From this version on a batch may have any codec: the consumers that came with older ones cannot read all (zstd, KIP-110).
ALL_CODECS_SINCE = max(codec.produce_since for codec in CODECS)
#: Errors that are explained to producers, who show it in their logs: failed validations and transactions that cannot be verified, as
#: in Kafka, and our own bounds. Of all others Kafka sends the code alone.
EXPLAINED = (
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.POLICY_VIOLATION,
)
#: Rejections that name no log start offset (-1): the log was not asked, or it is one of those that Kafka expects of clients. With all
#: others, as OUT_OF_ORDER_SEQUENCE_NUMBER and NOT_ENOUGH_REPLICAS, a producer sees where the log starts, as in Kafka.
WITHOUT_LOG_START = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
)
new_response = maker(ProduceResponse)
new_topic_response = maker(TopicProduceResponse)
new_partition_response = maker(PartitionProduceResponse)


def handle(broker: BrokerComponents, request: ProduceRequest, context: RequestContext) -> ProduceAnswer:
    denied = _take_denied(broker, request, context) if broker.authorizer.enabled else []
    if not denied:
        return _serve(broker, request, context)
    if request.acks == 0:
        if request.topic_data:
            _serve(broker, request, context)
        context.connection.close("a produce request with acks=0 failed")
        return None
    only_denied = copy.copy(request)
    only_denied.topic_data = denied
    rejection = _refused(only_denied, context, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if not request.topic_data:
        return rejection

    def merge(answer: ProduceResponse | None) -> ProduceResponse | None:
        if answer is not None:
            answer.responses.extend(rejection.responses)
        return answer

    return then(_serve(broker, request, context), merge)


def _refused(request: ProduceRequest, context: RequestContext, error: ErrorCode) -> ProduceResponse:
    response: ProduceResponse = error_reply(ApiKey.PRODUCE, context.api_version, request, KafkaError(error))
    return response


def may_write(authorizer: Authorizer, context: RequestContext, topic: str) -> bool:
    return authorizer.allows(context, WRITE, TOPIC, topic)


def _take_denied(broker: BrokerComponents, request: ProduceRequest, context: RequestContext) -> list[TopicProduceData]:
    """Take the topics out of the request that its client may not write to. An unknown topic id gets its own error later.

    Raises:
        KafkaError: it has records of a transaction, and its client may not use the transactional id.
    """
    authorizer, transactional_id = broker.authorizer, request.transactional_id
    if is_transactional(request) and (
        transactional_id is None or not authorizer.allows(context, WRITE, TRANSACTIONAL_ID, transactional_id)
    ):
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    allowed: list[TopicProduceData] = []
    denied: list[TopicProduceData] = []
    for topic in request.topic_data:
        name = topic.name or broker.metadata.topic_name(topic.topic_id)
        (allowed if not name or may_write(authorizer, context, name) else denied).append(topic)
    request.topic_data = allowed
    return denied


def _serve(
    broker: BrokerComponents,
    request: ProduceRequest,
    context: RequestContext,
    prepared: PreparedBatches = NONE_PREPARED,
) -> ProduceAnswer:
    if not -1 <= request.acks <= 1:
        return _refused(request, context, ErrorCode.INVALID_REQUIRED_ACKS)
    if is_transactional(request):
        return _append_admitted(broker, request, context, prepared)
    return _append(broker, request, context, NO_REJECTIONS, prepared)


def _append_admitted(
    broker: BrokerComponents, request: ProduceRequest, context: RequestContext, prepared: PreparedBatches
) -> ProduceAnswer:
    admission = Admission(
        broker.replicas, broker.internal_topics, broker.transactions.verifier, request, context.api_version
    )
    if admission.prepares and prepared is NONE_PREPARED:
        return append_prepared(broker, request, context, partial(_append_admitted, broker, request, context))
    verdicts = admission.ask()
    if not isinstance(verdicts, Reply):
        return _append(broker, request, context, admission.rejections(verdicts), prepared)
    verdicts.kept_bytes = keep_records(request)
    asked_ms = broker.world.clock.mono_ms()

    def admitted(known: Verdicts) -> ProduceAnswer:
        if verdicts.cancelled:
            return None
        request.timeout_ms -= broker.world.clock.mono_ms() - asked_ms
        answer = _append(broker, request, context, admission.rejections(known), prepared)
        drop_records(request)
        return answer

    return in_order(context, verdicts, admitted)


def _append(
    broker: BrokerComponents,
    request: ProduceRequest,
    context: RequestContext,
    rejections: PartitionRejections,
    prepared: PreparedBatches,
) -> ProduceAnswer:
    acks = request.acks
    now_ms = broker.world.clock.wall_ms()
    may_have_any_codec = context.api_version >= ALL_CODECS_SINCE
    turn = broker.long_work.turn
    turn.left = RECORDS_A_TURN
    waits: list[Wait] = []
    failed = False
    responses = []
    rest: ProduceRequest | None = None
    for topic_data in request.topic_data:
        partitions = []
        for data in topic_data.partition_data:
            try:
                partition = broker.replicas.lookup(topic_data.name, topic_data.topic_id, data.index)
                if partition.topic in broker.internal_topics:
                    _admit_to_internal_topic(broker, partition, context)
                if rejections and (partition.topic, partition.index) in rejections:
                    raise rejections[partition.topic, partition.index]
                # Null stands for no batch. The log rejects it, because a Produce has exactly one batch for each partition.
                records = data.records or b""
                if not may_have_any_codec:
                    _check_codec(records, context.api_version)
                appended = partition.append(
                    records, acks, now_ms, prepared=prepared.get(id(data), turn) if prepared else turn
                )
            except TooLong:
                rest = rest_of(request, topic_data, data)
                break
            except (KafkaError, StorageFailure) as failure:
                failed = True
                partitions.append(rejected(broker, topic_data, data.index, failure, context.api_version, rejections))
                continue
            written = new_partition_response(
                index=data.index,
                base_offset=appended.first_offset,
                log_append_time_ms=appended.log_append_time,
                log_start_offset=appended.log_start_offset,
            )
            partitions.append(written)
            if acks == -1 and not partition.is_committed(appended.last_offset):
                waits.append((partition.when_committed, appended.last_offset, _fails(written)))
            if partition.flush_messages != NEVER and partition.wants_flush:
                waits.append((partition.when_flushed, appended.last_offset, _fails(written)))
        responses.append(
            new_topic_response(name=topic_data.name, topic_id=topic_data.topic_id, partition_responses=partitions)
        )
        if rest is not None:
            break
    first: ProduceAnswer = None
    if acks != 0:
        response = first = new_response(responses=responses)
        if failed and context.api_version >= 10:
            add_endpoints(broker, response, context)
        if waits:
            reply: Reply[ProduceResponse | None] = Reply()
            first = reply
            reply.on_cancel = DelayedProduce(
                waits, request.timeout_ms, broker.wheel, lambda: reply.complete(response)
            ).cancel
    elif failed:
        context.connection.close("a produce request with acks=0 failed")
    if rest is None:
        return first
    return joined(rest, context, first, append_prepared(broker, rest, context, partial(_serve, broker, rest, context)))


def _admit_to_internal_topic(broker: BrokerComponents, partition: Partition, context: RequestContext) -> None:
    """Raise KafkaError for all but the administrator's client. What that one writes counts when its coordinator has read it."""
    if context.client_id != ADMIN_CLIENT_ID:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"cannot append to the internal topic {partition.topic}")
    for coordinator in (broker.groups, broker.transactions.coordinator, broker.share_coordinator):
        if coordinator.runtime.topic == partition.topic:
            broker.world.clock.call_later(0, partial(coordinator.runtime.reload, partition.index))


def _check_codec(records: bytes | memoryview, version: int) -> None:
    """Raise KafkaError for a batch whose codec a client of this version of Produce may not send."""
    number = records[ATTRIBUTES_LOW_AT] & CODEC_MASK if len(records) >= HEADER_BYTES else NO_COMPRESSION
    if number < len(CODECS) and version < (codec := CODECS[number]).produce_since:
        message = f"{codec.name} is for Produce from version {codec.produce_since} on (KIP-110)"
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, message)


def _fails(response: PartitionProduceResponse) -> Callable[[ErrorCode], None]:
    def fail(error: ErrorCode) -> None:
        response.error_code = error
        response.base_offset = -1
        response.log_append_time_ms = -1
        response.log_start_offset = -1

    return fail


# -- The response of partitions that reject the records


def rejected(
    broker: BrokerComponents,
    topic_data: TopicProduceData,
    index: int,
    failure: KafkaError | StorageFailure,
    api_version: int,
    rejections: PartitionRejections,
) -> PartitionProduceResponse:
    """Return the response of a partition that rejects the records, and counts the failure."""
    partition = broker.replicas.find(topic_data.name, topic_data.topic_id, index)
    error = failure if isinstance(failure, KafkaError) else KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
    response = PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=-1,
        error_message=error.message if error.code in EXPLAINED else None,
    )
    if partition is not None:
        partition.failed_appends += 1
        log = (
            None if error.code in WITHOUT_LOG_START or (partition.topic, index) in rejections else partition.leader_log
        )
        if log is not None:
            response.log_start_offset = log.log_start_offset
    record_errors = getattr(error, "record_errors", None)
    if record_errors:
        response.record_errors = [
            BatchIndexAndErrorMessage(batch_index=i, batch_index_error_message=text) for i, text in record_errors
        ]
    if api_version >= 10 and error.code in LEADER_MOVED:
        topic_id = topic_data.topic_id
        name = topic_data.name if topic_id == ZERO_UUID else broker.metadata.topic_name(topic_id) or ""
        leader_id, leader_epoch = broker.metadata.leader_and_epoch(name, index)
        response.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
    return response


def add_endpoints(broker: BrokerComponents, answer: ProduceResponse, context: RequestContext) -> None:
    """Add the addresses of the leaders that the partitions name (KIP-951)."""
    leaders = {
        partition.current_leader.leader_id
        for topic in answer.responses
        for partition in topic.partition_responses
        if partition.error_code in LEADER_MOVED
    }
    answer.node_endpoints = broker.metadata.node_endpoints(leaders, context)
