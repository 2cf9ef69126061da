"""Leader elections: those requested by ElectLeaders, and the scheduled ones of the controller."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.controller.decisions.index import TopicIdPartition
from ottla.controller.decisions.outcome import Outcome, check_records_max, own_words
from ottla.controller.decisions.partition_change import Election
from ottla.controller.decisions.state import ControlState
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.metadata_records import MetadataRecord
from ottla.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

# ElectionType (KIP-460)
PREFERRED = 0
UNCLEAN = 1

# The number of partitions in one scheduled run, so that requests are served in between. Partitions that cannot have another
# leader are left out before, at a fiftieth of the cost.
ELECTIONS_MAX = 400


def elect_leaders(state: ControlState, request: ElectLeadersRequest) -> Outcome[ElectLeadersResponse]:
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    every = request.topic_partitions is None
    records: list[MetadataRecord] = []
    response = ElectLeadersResponse()
    for topic, indexes in _asked(state, request):
        results = ReplicaElectionResult(topic=topic)
        response.replica_election_results.append(results)
        for index in indexes:
            error = _elect(state, topic, index, request.election_type, records)
            # A request for all partitions gets results only for those that needed an election.
            if every and error is not None and error.code == ErrorCode.ELECTION_NOT_NEEDED:
                continue
            results.partition_result.append(
                PartitionResult(
                    partition_id=index,
                    error_code=ErrorCode.NONE if error is None else error.code,
                    error_message=None if error is None else own_words(error),
                )
            )
    check_records_max(len(records))
    return Outcome(records, response)


def _asked(state: ControlState, request: ElectLeadersRequest) -> Iterable[tuple[str, list[int]]]:
    if request.topic_partitions is not None:
        return [(topic.topic, topic.partitions) for topic in request.topic_partitions]
    return [
        (topic.name, [index for index, _ in topic.sorted_partitions()])
        for topic in sorted(state.image.topics, key=lambda topic: topic.name)
    ]


def _elect(
    state: ControlState, name: str, index: int, election_type: int, records: list[MetadataRecord]
) -> KafkaError | None:
    topic = state.image.topics.by_name(name)
    if topic is None:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    partition = topic.partitions.get(index)
    if partition is None:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    preferred = election_type == PREFERRED
    if partition.has_preferred_leader if preferred else partition.has_leader:
        return KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    change = state.change(topic, index, partition, election=Election.PREFERRED if preferred else Election.UNCLEAN)
    record = change.record()
    if record is None:
        if preferred:
            return KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")
        return KafkaError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available."
        )
    records.append(record)
    return None


def return_to_preferred_leaders(state: ControlState) -> Outcome[bool]:
    """Elects preferred leaders (auto.leader.rebalance.enable). The response is True if there may be more to do."""
    is_active = state.image.cluster.is_active
    partitions = []
    for topic_id, index in state.index.imbalanced:
        topic = state.image.topics.by_id(topic_id)
        assert topic is not None, f"topic {topic_id.hex()} is in the index but not in the image"
        partition = topic.partitions[index]
        if is_active(partition.replicas[0]) and partition.replicas[0] in (*partition.isr, *partition.elr):
            partitions.append((topic_id, index))
    return _periodic(state, partitions, Election.PREFERRED)


def elect_unclean_leaders(state: ControlState) -> Outcome[bool]:
    """Elects leaders for partitions without a clean replica, if unclean.leader.election.enable has been set meanwhile."""
    is_active = state.image.cluster.is_active
    allowed: dict[bytes, bool] = {}
    partitions = []
    for topic_id, index in state.index.leaderless():
        topic = state.image.topics.by_id(topic_id)
        assert topic is not None, f"topic {topic_id.hex()} is in the index but not in the image"
        if topic_id not in allowed:
            allowed[topic_id] = state.unclean_election(topic.name)
        if allowed[topic_id] and any(map(is_active, topic.partitions[index].replicas)):
            partitions.append((topic_id, index))
    return _periodic(state, partitions, Election.UNCLEAN)


def _periodic(state: ControlState, partitions: Iterable[TopicIdPartition], election: Election) -> Outcome[bool]:
    records: list[MetadataRecord] = []
    for topic_id, index in partitions:
        if len(records) >= ELECTIONS_MAX:
            return Outcome(records, True)
        topic = state.image.topics.by_id(topic_id)
        assert topic is not None, f"topic {topic_id.hex()} is in the index but not in the image"
        record = state.change(topic, index, topic.partitions[index], election=election).record()
        if record is not None:
            records.append(record)
    return Outcome(records, False)
