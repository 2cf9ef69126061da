"""AlterPartition: a leader requests another ISR. It is a compare-and-set, which fails if any epoch is not the newest."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.controller.decisions.control_state import ControlState
from ottla.controller.decisions.leaving import PARTITIONS_PER_TURN
from ottla.controller.decisions.outcome import Decision, Outcome
from ottla.controller.metadata.topics import NO_LEADER_CHANGE, RECOVERED, RECOVERING, PartitionRegistration, TopicImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.metadata_records import MetadataRecord
from ottla.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionDataRequest,
    PartitionDataResponse,
    TopicDataResponse,
)

ANY_EPOCH = -1  # a broker epoch that the leader does not know (before v3)


def alter_partition(state: ControlState, request: AlterPartitionRequest) -> Decision[AlterPartitionResponse]:
    """Decide each partition by itself: after an outage one request may be about all partitions of a broker."""
    state.check_broker_epoch(request.broker_id, request.broker_epoch)
    records: list[MetadataRecord] = []
    response = AlterPartitionResponse()
    decided = 0
    for asked in request.topics:
        answered = TopicDataResponse(topic_id=asked.topic_id)
        response.topics.append(answered)
        for wanted in asked.partitions:
            if decided == PARTITIONS_PER_TURN:
                yield records
                state.check_broker_epoch(request.broker_id, request.broker_epoch)
                records, decided = [], 0
            # v2 has the ISR without broker epochs.
            isr_without_epochs = [BrokerState(broker_id=each) for each in wanted.new_isr]
            wanted.new_isr_with_epochs = wanted.new_isr_with_epochs or isr_without_epochs
            result = PartitionDataResponse(partition_index=wanted.partition_index)
            answered.partitions.append(result)
            decided += 1
            try:
                topic = state.image.topics.by_id(asked.topic_id)
                if topic is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
                _alter(state, request.broker_id, topic, wanted, result, records)
            except KafkaError as error:
                result.error_code = error.code
    return Outcome(records, response)


def _alter(
    state: ControlState,
    broker_id: int,
    topic: TopicImage,
    wanted: PartitionDataRequest,
    result: PartitionDataResponse,
    records: list[MetadataRecord],
) -> None:
    partition = topic.partitions.get(wanted.partition_index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    _check_epochs(broker_id, partition, wanted)
    _check_isr(partition, wanted)
    _check_eligible(state, wanted.new_isr_with_epochs)
    change = state.change(topic, wanted.partition_index, partition)
    change.isr = tuple(broker.broker_id for broker in wanted.new_isr_with_epochs)
    change.leader_recovery_state = wanted.leader_recovery_state
    record = change.record()
    if record is not None:
        records.append(record)
        partition = partition.merge(record)
        if record.leader not in (broker_id, NO_LEADER_CHANGE):
            # The change completed a reassignment that moved the leadership. The change is made, and the response is an error
            # nevertheless: the old leader has to read the metadata before its next request.
            raise KafkaError(ErrorCode.NEW_LEADER_ELECTED)
    result.leader_id = partition.leader
    result.leader_epoch = partition.leader_epoch
    result.isr = list(partition.isr)
    result.leader_recovery_state = partition.leader_recovery_state
    result.partition_epoch = partition.partition_epoch


def _check_epochs(broker_id: int, partition: PartitionRegistration, wanted: PartitionDataRequest) -> None:
    if wanted.leader_epoch > partition.leader_epoch or wanted.partition_epoch > partition.partition_epoch:
        # The leader has newer metadata than this controller, which is therefore probably no longer the active one.
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    if wanted.leader_epoch < partition.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    if broker_id != partition.leader:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if wanted.partition_epoch < partition.partition_epoch:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION)


def _check_isr(partition: PartitionRegistration, wanted: PartitionDataRequest) -> None:
    isr = [broker.broker_id for broker in wanted.new_isr_with_epochs]
    if not isr or len(set(isr)) != len(isr) or not set(isr) <= set(partition.replicas) or partition.leader not in isr:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if wanted.leader_recovery_state not in (RECOVERED, RECOVERING):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    begins_recovery = wanted.leader_recovery_state == RECOVERING
    if begins_recovery and (len(isr) > 1 or partition.leader_recovery_state == RECOVERED):
        raise KafkaError(ErrorCode.INVALID_REQUEST)


def _check_eligible(state: ControlState, isr: Sequence[BrokerState]) -> None:
    """Raise INELIGIBLE_REPLICA for a member that is fenced, shutting down or restarted: it may lack records that the leader counts on."""
    for member in isr:
        broker = state.image.cluster.brokers.get(member.broker_id)
        if broker is None or not broker.active or member.broker_epoch not in (ANY_EPOCH, broker.epoch):
            raise KafkaError(ErrorCode.INELIGIBLE_REPLICA)
