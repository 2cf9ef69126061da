"""Reassignment of partitions to other brokers (KIP-455): begin, cancel, list.

A reassignment takes at most three records: replicas = target + removing with both lists set; ISR changes until every
replica of the target is in sync; then, in the record of the last ISR change, the removed replicas are dropped
(partition_change.py). If the ISR has all of them already, there is one record only.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.controller.decisions.control_state import ControlState
from ottla.controller.decisions.leaving import PARTITIONS_PER_TURN
from ottla.controller.decisions.new_partitions import check_manual_assignment
from ottla.controller.decisions.outcome import Decision, Outcome, check_records_max
from ottla.controller.decisions.partition_change import Election
from ottla.controller.metadata.topics import PartitionRegistration, TopicImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.metadata_records import MetadataRecord
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def alter_partition_reassignments(
    state: ControlState, request: AlterPartitionReassignmentsRequest
) -> Decision[AlterPartitionReassignmentsResponse]:
    records: list[MetadataRecord] = []
    response = AlterPartitionReassignmentsResponse(
        error_message=None, allow_replication_factor_change=request.allow_replication_factor_change
    )
    check_records_max(sum(len(asked.partitions) for asked in request.topics))
    decided = 0
    for asked in request.topics:
        answered = ReassignableTopicResponse(name=asked.name)
        response.responses.append(answered)
        for wanted in asked.partitions:
            if decided == PARTITIONS_PER_TURN:
                yield records
                records, decided = [], 0
            result = ReassignablePartitionResponse(partition_index=wanted.partition_index, error_message=None)
            answered.partitions.append(result)
            decided += 1
            try:
                record = _reassign(
                    state,
                    asked.name,
                    wanted.partition_index,
                    wanted.replicas,
                    request.allow_replication_factor_change,
                )
            except KafkaError as error:
                result.error_code, result.error_message = error.code, error.own_words
            else:
                if record is not None:
                    records.append(record)
    return Outcome(records, response)


def _reassign(
    state: ControlState, name: str, index: int, target: Sequence[int] | None, factor_may_change: bool
) -> MetadataRecord | None:
    topic = state.image.topics.by_name(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    partition = topic.partitions.get(index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}.")
    if target is None:
        return _cancel(state, topic, index, partition)
    check_manual_assignment(state, target, None)
    current_factor = len(partition.replicas) - len(partition.removing_replicas)
    if not factor_may_change and len(target) != current_factor:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {current_factor} to {len(target)}",
        )
    change = state.change(topic, index, partition, election=Election.ONLINE)
    # A new target replaces the lists of a reassignment in progress.
    change.removing = tuple(sorted(set(partition.replicas) - set(target)))
    change.adding = tuple(sorted(set(target) - set(partition.replicas)))
    change.replicas = (*target, *change.removing)
    return change.record()


def _cancel(
    state: ControlState, topic: TopicImage, index: int, partition: PartitionRegistration
) -> MetadataRecord | None:
    """Return to the assignment without the added replicas, and with those that were to be removed."""
    if not partition.reassigning:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    replicas = tuple(replica for replica in partition.replicas if replica not in partition.adding_replicas)
    isr = tuple(replica for replica in partition.isr if replica not in partition.adding_replicas)
    if not replicas:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Invalid replica assignment: addingReplicas contains all replicas."
        )
    if not isr and not state.unclean_election(topic.name):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Unable to revert partition assignment for {topic.name}:{index} because it would require an unclean"
            " leader election.",
        )
    change = state.change(topic, index, partition)
    # Without a replica of the old assignment in sync, the first one leads uncleanly.
    change.isr = isr or replicas[:1]
    change.replicas = replicas
    change.removing = change.adding = ()
    return change.record()


def list_partition_reassignments(
    state: ControlState, request: ListPartitionReassignmentsRequest
) -> Outcome[ListPartitionReassignmentsResponse]:
    response = ListPartitionReassignmentsResponse(error_message=None)
    for topic, indexes in _listed(state, request):
        ongoing = OngoingTopicReassignment(name=topic.name)
        for index in indexes:
            partition = topic.partitions.get(index)
            if partition is not None and partition.reassigning:
                ongoing.partitions.append(
                    OngoingPartitionReassignment(
                        partition_index=index,
                        replicas=list(partition.replicas),
                        adding_replicas=list(partition.adding_replicas),
                        removing_replicas=list(partition.removing_replicas),
                    )
                )
        if ongoing.partitions:
            response.topics.append(ongoing)
    return Outcome([], response)


def _listed(state: ControlState, request: ListPartitionReassignmentsRequest) -> list[tuple[TopicImage, Sequence[int]]]:
    topics = state.image.topics
    if request.topics is not None:
        named = [(topics.by_name(asked.name), asked.partition_indexes) for asked in request.topics]
        return [(topic, indexes) for topic, indexes in named if topic is not None]
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, index in state.index.reassigning:
        by_topic.setdefault(topic_id, []).append(index)
    found = [(topics.by_id(topic_id), sorted(indexes)) for topic_id, indexes in by_topic.items()]
    return [(topic, indexes) for topic, indexes in found if topic is not None]
