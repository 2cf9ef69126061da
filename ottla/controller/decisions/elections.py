"""Leader elections: those requested by ElectLeaders, and the scheduled ones of the controller."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ottla.controller.decisions.control_state import ControlState
from ottla.controller.decisions.index import PartitionSet, TopicIdPartition
from ottla.controller.decisions.outcome import Decision, Outcome, check_records_max
from ottla.controller.decisions.partition_change import Election
from ottla.controller.metadata.topics import PartitionRegistration, TopicImage, TopicsImage
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

# The limits of one turn of the event loop, so that requests are served in between: of elections, and of partitions that are
# looked at. A partition that cannot have another leader is skipped, at a fiftieth of the cost of an election.
ELECTIONS_MAX = 400
LOOKED_AT_MAX = 4_000


def elect_leaders(state: ControlState, request: ElectLeadersRequest) -> Decision[ElectLeadersResponse]:
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    every = request.topic_partitions is None
    records: list[MetadataRecord] = []
    response = ElectLeadersResponse()
    looked_at = before = 0
    for topic, indexes in _asked(state, request):
        results = ReplicaElectionResult(topic=topic)
        response.replica_election_results.append(results)
        for index in indexes:
            error = _elect(state, topic, index, request.election_type, records)
            # A request for all partitions gets results only for those that needed an election.
            if not (every and error is not None and error.code == ErrorCode.ELECTION_NOT_NEEDED):
                results.partition_result.append(
                    PartitionResult(
                        partition_id=index,
                        error_code=ErrorCode.NONE if error is None else error.code,
                        error_message=None if error is None else error.own_words,
                    )
                )
            looked_at += 1
            check_records_max(before + len(records))
            if looked_at >= LOOKED_AT_MAX or len(records) >= ELECTIONS_MAX:
                yield records
                before += len(records)
                records, looked_at = [], 0
    return Outcome(records, response)


def _asked(state: ControlState, request: ElectLeadersRequest) -> Iterator[tuple[str, list[int]]]:
    """Yield the requested partitions, or all of the image at the beginning."""
    if request.topic_partitions is not None:
        yield from ((topic.topic, topic.partitions) for topic in request.topic_partitions)
        return
    for topic in sorted(state.image.topics, key=lambda topic: topic.name):
        yield topic.name, [index for index, _ in topic.sorted_partitions()]


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


class Candidates:
    """The partitions that the present run of a scheduled election still has to look at, over several turns. It is None before a
    run.
    """

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left: list[TopicIdPartition] | None = None


def return_to_preferred_leaders(state: ControlState, candidates: Candidates | None = None) -> Outcome[bool]:
    """Elect preferred leaders (auto.leader.rebalance.enable). The response is True if there are more to look at."""
    is_active = state.image.cluster.is_active

    def is_possible(topic: TopicImage, partition: PartitionRegistration) -> bool:
        preferred = partition.preferred_replica
        return is_active(preferred) and preferred in (*partition.isr, *partition.elr)

    return _some(state, candidates, state.index.imbalanced, is_possible, Election.PREFERRED)


def elect_unclean_leaders(state: ControlState, candidates: Candidates | None = None) -> Outcome[bool]:
    """Elect leaders for partitions without a clean replica, if unclean.leader.election.enable has been set meanwhile."""
    is_active = state.image.cluster.is_active
    allowed: dict[bytes, bool] = {}

    def is_possible(topic: TopicImage, partition: PartitionRegistration) -> bool:
        if topic.id not in allowed:
            allowed[topic.id] = state.unclean_election(topic.name)
        return allowed[topic.id] and any(map(is_active, partition.replicas))

    return _some(state, candidates, state.index.leaderless_partitions, is_possible, Election.UNCLEAN)


def _some(
    state: ControlState,
    candidates: Candidates | None,
    every: PartitionSet,
    is_possible: Callable[[TopicImage, PartitionRegistration], bool],
    election: Election,
) -> Outcome[bool]:
    candidates = Candidates() if candidates is None else candidates
    if candidates.left is None:
        candidates.left = list(reversed(every))
    left, looked_at = candidates.left, 0
    records: list[MetadataRecord] = []
    while left and looked_at < LOOKED_AT_MAX and len(records) < ELECTIONS_MAX:
        topic_id, index = left.pop()
        looked_at += 1
        topic = state.image.topics.by_id(topic_id)
        partition = None if topic is None else topic.partitions.get(index)
        if topic is None or partition is None or not is_possible(topic, partition):
            continue  # a deleted one, or one that would keep its leader
        record = state.change(topic, index, partition, election=election).record()
        if record is not None:
            records.append(record)
    return Outcome(records, bool(left))


def raised_epochs(topics: TopicsImage, floors: Mapping[tuple[str, int], int]) -> list[MetadataRecord]:
    """Return what raises leader epochs to these, in a cluster that was set back: no leader has had them before, there or then.

    A change of the leader adds one to the epoch, so that the records are those of new partitions, which Kafka replays, too.
    """
    records: list[MetadataRecord] = []
    for (name, index), floor in sorted(floors.items()):
        topic = topics.by_name(name)
        partition = None if topic is None else topic.partitions.get(index)
        if topic is not None and partition is not None and partition.leader_epoch < floor:
            raised = partition._replace(leader_epoch=floor, partition_epoch=partition.partition_epoch + 1)
            records.append(raised.to_record(topic.id, index))
    return records
