"""Questions that the log of a partition answers: its offsets, the ends of its leader epochs, its producers."""

from __future__ import annotations

import logging
from collections import Counter

from ottla.broker.components import BrokerComponents
from ottla.broker.fetch.reader import CONSUMER_REPLICA_ID, ISOLATION_LEVELS, READ_COMMITTED
from ottla.broker.replication.partition import Partition
from ottla.broker.tiered_topics import RemoteFindings
from ottla.controller.metadata.topic_names import is_valid_topic_name
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from ottla.protocol.schema import ZERO_UUID
from ottla.protocol.work import Turn, Work
from ottla.server.network.context import Answer, Reply, RequestContext
from ottla.storage.errors import CorruptFile, StorageFailure
from ottla.storage.log import lookup

logger = logging.getLogger(__name__)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
#: The version from which each special timestamp means something.
SINCE_VERSION = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
DEBUGGING_REPLICA_ID, UNKNOWN = -2, (-1, -1, -1)
#: The cost of a partition without a search, as a number of records that a search looks at in the same time: three microseconds.
RECORDS_PER_PARTITION = 3


def list_offsets(
    broker: BrokerComponents, request: ListOffsetsRequest, context: RequestContext
) -> Answer[ListOffsetsResponse]:
    """ListOffsets (2): the offset at a time, or at a named place.

        timestamp   since   answer
        -1 latest   v0      last stable offset or high watermark by isolation; OFFSET_NOT_AVAILABLE right after an election (v5)
        -2 earliest v0      log start offset
        -3 max      v7      the record with the largest timestamp (KIP-734)
        -4 local    v8      the first offset on the local disk (KIP-405)
        -5 tiered   v9      the last offset that remote storage has as well, unknown if it has none
        -6 pending  v11     the first offset that remote storage does not have, unknown without remote.storage.enable
        t >= 0              the first offset whose timestamp is >= t, if it is below what the reader may see

    A search by time may lead through the whole log, and its batches may hold anything: it works in turns (`broker/long_work.py`).

    v0 lists of offsets (KIP-79) · v2 isolation_level · v4 leader epochs · v6 flexible · v10 timeout_ms, which is not read.

    Errors:
        INVALID_REQUEST       the partition is twice in the request
        UNSUPPORTED_VERSION   the timestamp is a named place of a later version
        OFFSET_NOT_AVAILABLE  the leader has just been elected, and its high watermark lags
        LEADER_NOT_AVAILABLE  the same before v5
        KAFKA_STORAGE_ERROR   the log cannot be read
        UNKNOWN_SERVER_ERROR  there is no such isolation level
    """
    if request.isolation_level not in ISOLATION_LEVELS:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"isolation level {request.isolation_level}")
    tiers = broker.tiers
    searches = {} if tiers is None else tiers.reads.searches_of(broker.replicas, request)
    if not searches or tiers is None:
        return _locally(broker, request, context, {})
    reply: Reply[ListOffsetsResponse] = Reply()
    work = tiers.reads.search_all(searches, reply, lambda found: _locally(broker, request, context, found))
    broker.world.spawn(work, "remote searches")
    return reply


def _locally(
    broker: BrokerComponents, request: ListOffsetsRequest, context: RequestContext, remote: RemoteFindings
) -> Answer[ListOffsetsResponse]:
    work = _answer(broker, request, context, remote)
    return broker.long_work.run(context, work, lambda answer: answer, is_search=True)


def _answer(
    broker: BrokerComponents, request: ListOffsetsRequest, context: RequestContext, remote: RemoteFindings
) -> Work[ListOffsetsResponse]:
    turn = Turn()
    counts = Counter((topic.name, p.partition_index) for topic in request.topics for p in topic.partitions)
    response = ListOffsetsResponse()
    for topic in request.topics:
        answers = []
        for asked in topic.partitions:
            answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
            try:
                if counts[topic.name, asked.partition_index] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "the partition is asked for twice")
                if asked.timestamp < 0 and context.api_version < SINCE_VERSION.get(asked.timestamp, 1 << 15):
                    raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
                partition = broker.replicas.lookup(topic.name, ZERO_UUID, asked.partition_index)
                elsewhere = remote.get((topic.name, asked.partition_index))
                found = yield from _look_up(partition, asked, request, turn, elsewhere)
                answer.timestamp, answer.offset, answer.leader_epoch = found
                if context.api_version == 0:
                    log, most = partition.local_log(-1, require_leader=True), asked.max_num_offsets
                    answer.old_style_offsets = lookup.offsets_before(log, asked.timestamp, found[1], most)
            except KafkaError as error:
                answer.error_code = _known_code(error.code, context.api_version)
            except (StorageFailure, CorruptFile) as failure:
                logger.warning("%s-%d cannot be searched: %s", topic.name, asked.partition_index, failure)
                answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            if context.api_version < 4:
                answer.leader_epoch = -1
            answers.append(answer)
            if turn.spend(RECORDS_PER_PARTITION):
                yield None
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return response


def _known_code(code: ErrorCode, api_version: int) -> ErrorCode:
    """Return an error that the client's version knows: OFFSET_NOT_AVAILABLE came with v5."""
    if code == ErrorCode.OFFSET_NOT_AVAILABLE and api_version < 5:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return code


def _look_up(
    partition: Partition,
    asked: ListOffsetsPartition,
    request: ListOffsetsRequest,
    turn: Turn,
    remote: tuple[int, int, int] | KafkaError | None,
) -> Work[tuple[int, int, int]]:
    log = partition.local_log(asked.current_leader_epoch, require_leader=request.replica_id != DEBUGGING_REPLICA_ID)
    is_client = request.replica_id == CONSUMER_REPLICA_ID
    if not is_client:
        limit = log.log_end_offset
    elif request.isolation_level == READ_COMMITTED:
        limit = log.last_stable_offset
    else:
        limit = log.high_watermark
    # Invariant 8: no offset is below one that the former leader returned. After an election the high watermark may be lower.
    lags = is_client and partition.is_leader and log.high_watermark < partition.epoch_start_offset
    match asked.timestamp:
        case -1:  # LATEST
            if lags:
                raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
            return -1, limit, partition.leader_epoch
        case -2:  # EARLIEST
            return -1, log.log_start_offset, log.epochs.epoch_of(log.log_start_offset)
        case -4:  # EARLIEST_LOCAL
            return -1, log.local_start_offset, log.epochs.epoch_of(log.local_start_offset)
        case -5:  # LATEST_TIERED
            return UNKNOWN if log.remote_end < 0 else (-1, log.remote_end, log.epochs.epoch_of(log.remote_end))
        case -6:  # EARLIEST_PENDING_UPLOAD
            offset = max(log.remote_end + 1, log.log_start_offset)
            return (-1, offset, log.epochs.epoch_of(offset)) if log.config.remote_storage_enable else UNKNOWN
        case -3:  # MAX_TIMESTAMP
            found = yield from lookup.max_timestamp(log, turn)
        case _ if isinstance(remote, KafkaError):
            raise remote
        case _ if remote is not None:
            found = remote
        case timestamp:
            found = yield from lookup.offset_for_timestamp(log, timestamp, turn)
    if found is not None and found[1] < limit:
        return found
    if lags:
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
    return UNKNOWN


def offset_for_leader_epoch(
    broker: BrokerComponents, request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    """OffsetForLeaderEpoch (23): where a leader epoch ended, for clients and followers that look for their divergence (KIP-320).

    v3 replica_id · v4 flexible. Only the leader responds, also to a debugging consumer (replica_id -2).
    """
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        answers = []
        for asked in topic.partitions:
            answer = EpochEndOffset(partition=asked.partition)
            try:
                partition = broker.replicas.lookup(topic.topic, ZERO_UUID, asked.partition)
                log = partition.local_log(asked.current_leader_epoch, require_leader=True)
                answer.leader_epoch, answer.end_offset = log.end_offset_for_epoch(asked.leader_epoch)
            except KafkaError as error:
                answer.error_code = error.code
            answers.append(answer)
        response.topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
    return response


def describe_producers(
    broker: BrokerComponents, request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse:
    """DescribeProducers (61): the producers with state in partitions that this broker has (KIP-664).

    A follower answers from its own replica, as Kafka's does: `kafka-transactions.sh describe-producers --broker-id` compares
    replicas that way. The client asks the leader unless it names a broker.

    Errors:
        INVALID_TOPIC_EXCEPTION  no topic may have the name
    """
    response = DescribeProducersResponse()
    for topic in request.topics:
        partitions = []
        for index in topic.partition_indexes:
            answer = PartitionResponse(partition_index=index)
            try:
                if not is_valid_topic_name(topic.name):
                    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
                log = broker.replicas.lookup(topic.name, ZERO_UUID, index).local_log(-1, require_leader=False)
                answer.active_producers = [
                    ProducerState(
                        producer_id=p.producer_id,
                        producer_epoch=p.epoch,
                        last_sequence=p.last_sequence,
                        last_timestamp=p.last_timestamp,
                        coordinator_epoch=p.coordinator_epoch,
                        current_txn_start_offset=p.current_txn_first_offset,
                    )
                    for p in log.producers
                ]
            except KafkaError as error:
                answer.error_code = error.code
                answer.error_message = error.own_words
            partitions.append(answer)
        response.topics.append(TopicResponse(name=topic.name, partitions=partitions))
    return response
