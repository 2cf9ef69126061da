"""The append of a Produce to the partitions that this broker leads. A hot path: one plain function, no await, no record decoded.

Each partition has its own error. The steps before the append are in handler.py: authorization, and the waits of a request.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from itertools import dropwhile
from typing import TypeAlias

from ottla.broker.components import BrokerComponents
from ottla.broker.metadata_cache import LEADER_MOVED
from ottla.broker.replication.delayed_produce import DelayedProduce, Wait
from ottla.broker.replication.partition import Partition
from ottla.broker.transactions.admission import PartitionRejections
from ottla.controller.metadata.topic_names import ADMIN_CLIENT_ID
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.protocol.messages.shared_structs import LeaderIdAndEpoch
from ottla.protocol.records.batch import ATTRIBUTES_LOW_AT, CODEC_MASK, HEADER_BYTES
from ottla.protocol.records.builder import Prepared
from ottla.protocol.records.compression import CODECS, NO_COMPRESSION
from ottla.protocol.schema import ZERO_UUID, maker
from ottla.protocol.work import RECORDS_A_TURN, TooLong
from ottla.server.network.context import Answer, Reply, RequestContext
from ottla.storage.errors import StorageFailure

#: Prepared batches by `id()` of their PartitionProduceData.
PreparedBatches: TypeAlias = Mapping[int, Prepared]
NONE_PREPARED: PreparedBatches = {}
ProduceAnswer: TypeAlias = Answer[ProduceResponse | None]

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


def append(
    broker: BrokerComponents,
    request: ProduceRequest,
    context: RequestContext,
    rejections: PartitionRejections,
    prepared: PreparedBatches,
) -> tuple[ProduceAnswer, ProduceRequest | None]:
    """Append the batches in this turn; return the answer, and the rest from the first batch on that asks for more work than a turn has.

    The log of a partition with one of the `rejections` is not asked.
    """
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
                partitions.append(_rejected(broker, topic_data, data.index, failure, context.api_version, rejections))
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
            if partition.flushes and partition.wants_flush:
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
            _add_endpoints(broker, response, context)
        if waits:
            reply: Reply[ProduceResponse | None] = Reply()
            first = reply
            reply.on_cancel = DelayedProduce(
                waits, request.timeout_ms, broker.wheel, lambda: reply.complete(response)
            ).cancel
    elif failed:
        context.connection.close("a produce request with acks=0 failed")
    return first, rest


def rest_of(request: ProduceRequest, topic: TopicProduceData, data: PartitionProduceData) -> ProduceRequest:
    """Return the rest of the request, from `data` of `topic` on. It shares no object with the first part, whose records may be freed."""
    rest = copy.copy(request)
    rest.topic_data = [copy.copy(each) for each in dropwhile(lambda each: each is not topic, request.topic_data)]
    rest.topic_data[0].partition_data = list(dropwhile(lambda each: each is not data, topic.partition_data))
    for each in rest.topic_data:
        each.partition_data = [copy.copy(batch) for batch in each.partition_data]
    return rest


def _admit_to_internal_topic(broker: BrokerComponents, partition: Partition, context: RequestContext) -> None:
    """Raise KafkaError for all but the administrator's client. The coordinator loads its partition again after such a write."""
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


def _rejected(
    broker: BrokerComponents,
    topic_data: TopicProduceData,
    index: int,
    failure: KafkaError | StorageFailure,
    api_version: int,
    rejections: PartitionRejections,
) -> PartitionProduceResponse:
    """Return the response of a partition that rejects the records, and count the failure."""
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


def _add_endpoints(broker: BrokerComponents, answer: ProduceResponse, context: RequestContext) -> None:
    """Add the addresses of the leaders that the partitions name (KIP-951)."""
    leaders = {
        partition.current_leader.leader_id
        for topic in answer.responses
        for partition in topic.partition_responses
        if partition.error_code in LEADER_MOVED
    }
    answer.node_endpoints = broker.metadata.node_endpoints(leaders, context)
