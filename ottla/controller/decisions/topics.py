"""Creation and deletion of topics, and creation of partitions. The handlers authorize the requests.

A request may be about many topics, each decided by itself: as many of them in one turn of the event loop as it has time for. A
topic is one atomic change, with all of its partitions. The partitions of a large one are placed and encoded in turns before it, and
count if the brokers, the features and the topic are still those that they were placed for; then they are appended and replayed in one turn.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from random import Random
from typing import TypeAlias, TypeVar

from ottla.controller.decisions.configs import ConfigDecisions, ConfigOp
from ottla.controller.decisions.control_state import ControlState
from ottla.controller.decisions.new_partitions import (
    NewPartitions,
    bad_assignment,
    check_manual_assignment,
    check_partitions_max,
    manual_partition,
)
from ottla.controller.decisions.outcome import Decision, Outcome, check_records_max
from ottla.controller.decisions.placement import place
from ottla.controller.metadata.configs import ResourceType
from ottla.controller.metadata.encoding import EncodedRecords
from ottla.controller.metadata.topic_names import check_name
from ottla.controller.metadata.topics import PartitionRegistration
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.metadata_records import (
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.protocol.messages.create_partitions import CreatePartitionsTopic, CreatePartitionsTopicResult
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicResult
from ottla.protocol.messages.delete_topics import DeletableTopicResult
from ottla.protocol.primitives import new_uuid
from ottla.protocol.schema import ZERO_UUID
from ottla.protocol.work import Turn
from ottla.server.quotas.clients import unlimited

#: Counts partitions against the client's quota (KIP-599); raises KafkaError where they are too many.
Charge = Callable[[int], None]
Topic = TypeVar("Topic")
Result = TypeVar("Result")
#: Work on one topic that yields after each turn's worth. Nothing is appended for the topic before it is complete.
InSlices: TypeAlias = Generator[None, None, Result]

#: The budget of one turn in partitions, of about 9 us each to decide, replay and encode. The turn ends with the topic that uses it up.
PARTITIONS_PER_TURN = 1_000
#: The cost of a topic besides its partitions: its configs are checked, and listed in the response.
TOPIC_COST = 12
#: The budget of one turn in deleted partitions, of about 2 us each: the index forgets every one of them.
DELETED_PER_TURN = 4_000
#: How often the partitions of a topic are placed in turns; if the brokers have changed each time, they are placed in one turn.
ATTEMPTS = 3
NO_DEFAULT = -1  # num_partitions, replication_factor: the server chooses


def _one_by_one(
    state: ControlState,
    topics: Sequence[Topic],
    decide: Callable[[Topic], InSlices[tuple[EncodedRecords, Result]]],
    rejected: Callable[[Topic, KafkaError], Result],
    partitions: Callable[[Topic], int],
    *,
    validate_only: bool,
    charge: Charge,
) -> Decision[list[Result]]:
    """Decide topics one by one: an invalid topic does not hinder the others.

    `partitions` returns the number that the topic asks for, which counts for the turn even if the topic is rejected. `charge`
    raises KafkaError if the client's quota does not allow this number; topics with another error are not charged.
    """
    records = _encoded(state)
    results: list[Result] = []
    spent = before = 0
    for topic in topics:
        if spent >= PARTITIONS_PER_TURN or (spent and partitions(topic) >= PARTITIONS_PER_TURN):
            # A topic of so many is decided in turns: those before it are appended first, while what they were decided from stands.
            before += len(records)
            yield [] if validate_only else records
            records, spent = _encoded(state), 0
        try:
            new, result = yield from _waiting(decide(topic))
            check_records_max(before + len(records) + len(new))
            charge(partitions(topic))
            if records:
                records.add_all(new)
            else:  # not copied; the features may be others since the list was begun, if this topic took turns
                records = new
        except KafkaError as error:
            result = rejected(topic, error)
        results.append(result)
        spent += TOPIC_COST + max(0, partitions(topic))
    return Outcome([] if validate_only else records, results)


def _waiting(work: InSlices[Result]) -> Generator[list[MetadataRecord], None, Result]:
    """Return the result of the work; in each of its turns nothing is decided."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: Result = end.value
            return result
        yield []


def _undisturbed(stands_on: Callable[[], tuple[object, ...]], work: Callable[[], InSlices[Result]]) -> InSlices[Result]:
    """Return the result of work in turns. If what it stands on is not the same any more, it begins again, and the last time in one turn."""
    for left in reversed(range(ATTEMPTS + 1)):
        before, running, has_waited = stands_on(), work(), False
        try:
            while True:
                next(running)
                if left:
                    has_waited = True
                    yield
        except StopIteration as end:
            if has_waited:
                yield  # what follows is long enough without the last part of the work
            if all(one is other for one, other in zip(before, stands_on(), strict=True)):
                result: Result = end.value
                return result
    raise AssertionError("nothing changes within a turn")


def create_topics(
    state: ControlState,
    topics: Sequence[CreatableTopic],
    configs: ConfigDecisions,
    rng: Random,
    *,
    validate_only: bool,
    describable: frozenset[str],
    charge: Charge = unlimited,
) -> Decision[list[CreatableTopicResult]]:
    """Create topics. `describable`: topics whose configs the caller may read."""
    return _one_by_one(
        state,
        topics,
        lambda topic: _create(state, topic, configs, rng, topic.name in describable),
        lambda topic, error: CreatableTopicResult(
            name=topic.name, error_code=error.code, error_message=error.own_words
        ),
        lambda topic: (
            len(topic.assignments)
            or (state.settings.num_partitions if topic.num_partitions == NO_DEFAULT else topic.num_partitions)
        ),
        validate_only=validate_only,
        charge=charge,
    )


def _create(
    state: ControlState, topic: CreatableTopic, configs: ConfigDecisions, rng: Random, describable: bool
) -> InSlices[tuple[EncodedRecords, CreatableTopicResult]]:
    _check_new(state, topic)
    _creation_configs(state, topic, configs)
    topic_id, factor, partitions = yield from _undisturbed(
        lambda: (state.image.cluster, state.image.features), lambda: _new_topic(state, topic, rng)
    )
    _check_new(state, topic)  # another request may have created it while these were placed
    first = TopicRecord(name=topic.name, topic_id=topic_id)
    records = _encoded(state, first, *_creation_configs(state, topic, configs))
    records.add_all(partitions)
    result = CreatableTopicResult(name=topic.name, topic_id=topic_id, error_message=None)
    if describable:
        result.num_partitions = len(partitions)
        result.replication_factor = factor
        overrides = {config.name: config.value or "" for config in topic.configs}
        result.configs = configs.effective_topic_configs(state.image, overrides)
    else:
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        result.configs = None
    return records, result


def _check_new(state: ControlState, topic: CreatableTopic) -> None:
    check_name(topic.name)
    collision = state.index.collision(topic.name)
    if topic.name in state.image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    if collision is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{topic.name}' collides with existing topic: {collision}",
        )


def _new_topic(state: ControlState, topic: CreatableTopic, rng: Random) -> InSlices[tuple[bytes, int, EncodedRecords]]:
    """Return the id, the replication factor and the partitions of a new topic."""
    placed = _manual(state, topic) if topic.assignments else _placed(state, topic, rng)
    partitions = dict((yield from _in_slices(placed)))
    if topic.assignments and sorted(partitions) != list(range(len(partitions))):
        raise bad_assignment("partitions should be a consecutive 0-based integer sequence")
    topic_id = new_uuid(rng)
    rows = (made.to_record(topic_id, index) for index, made in sorted(partitions.items()))
    records = yield from _encoded_in_slices(state, rows)
    return topic_id, len(partitions[0].replicas), records


def _in_slices(items: Iterable[Topic]) -> InSlices[list[Topic]]:
    """Return the items, which are made a turn's worth at a time."""
    made: list[Topic] = []
    for item in items:
        made.append(item)
        if len(made) % PARTITIONS_PER_TURN == 0:
            yield
    return made


def _encoded_in_slices(state: ControlState, partitions: Iterable[PartitionRecord]) -> InSlices[EncodedRecords]:
    """Return the records, which are made and encoded a turn's worth at a time."""
    records = _encoded(state)
    for partition in partitions:
        records.add(partition)
        if len(records) % PARTITIONS_PER_TURN == 0:
            yield
    return records


def _encoded(state: ControlState, *records: MetadataRecord) -> EncodedRecords:
    return EncodedRecords(state.image.features.metadata_version, records)


def _creation_configs(state: ControlState, topic: CreatableTopic, configs: ConfigDecisions) -> list[MetadataRecord]:
    nulls = [config.name for config in topic.configs if config.value is None]
    if nulls:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(nulls)}")
    if not topic.configs:
        return []
    operations = {config.name: (ConfigOp.SET, config.value) for config in topic.configs}
    return configs.alter(state, ResourceType.TOPIC, topic.name, operations, new_resource=True)


def _manual(state: ControlState, topic: CreatableTopic) -> Iterator[tuple[int, PartitionRegistration]]:
    """Yield the partitions with the client's assignment."""
    if topic.replication_factor != NO_DEFAULT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        )
    if topic.num_partitions != NO_DEFAULT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        )
    seen: set[int] = set()
    new, replication_factor = NewPartitions(state), None
    for assignment in topic.assignments:
        index = assignment.partition_index
        if index in seen:
            raise bad_assignment(f"Found multiple manual partition assignments for partition {index}")
        check_manual_assignment(state, assignment.broker_ids, replication_factor)
        replication_factor = len(assignment.broker_ids)
        seen.add(index)
        yield index, manual_partition(state, new, index, assignment.broker_ids)


def _placed(state: ControlState, topic: CreatableTopic, rng: Random) -> Iterator[tuple[int, PartitionRegistration]]:
    """Yield the partitions with the controller's placement."""
    if topic.replication_factor < NO_DEFAULT or topic.replication_factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.num_partitions < NO_DEFAULT or topic.num_partitions == 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    settings = state.settings
    count = settings.num_partitions if topic.num_partitions == NO_DEFAULT else topic.num_partitions
    factor = settings.default_replication_factor if topic.replication_factor == NO_DEFAULT else topic.replication_factor
    release = settings.advertised.release
    check_partitions_max(count)
    try:
        placed = place(state.usable_brokers(), partitions=count, replication_factor=factor, rng=rng, release=release)
    except KafkaError as error:
        before = "" if release.has_zookeeper else f"Unable to replicate the partition {factor} time(s): "
        raise KafkaError(error.code, f"{before}{error.message}") from None
    new = NewPartitions(state)
    for index, replicas in enumerate(placed):
        yield index, new.make(replicas)


def delete_topics(
    state: ControlState, topics: Sequence[tuple[str, bytes]], charge: Charge = unlimited
) -> Decision[list[DeletableTopicResult]]:
    """Delete the topics, given as (name, id), which exist and which the caller may delete."""
    check_records_max(len(topics))
    records: list[MetadataRecord] = []
    results = []
    turn = Turn(DELETED_PER_TURN)
    for name, topic_id in topics:
        result = DeletableTopicResult(name=name, topic_id=topic_id)
        topic = state.image.topics.by_id(topic_id)
        if topic is None:
            result.error_code = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            try:
                charge(len(topic.partitions))
                records.append(RemoveTopicRecord(topic_id=topic_id))
            except KafkaError as error:
                result.error_code, result.error_message = error.code, error.own_words
        results.append(result)
        if topic is not None and turn.spend(1 + len(topic.partitions)):
            yield records
            records = []
    return Outcome(records, results)


def create_partitions(
    state: ControlState,
    topics: Sequence[CreatePartitionsTopic],
    rng: Random,
    *,
    validate_only: bool,
    charge: Charge = unlimited,
) -> Decision[list[CreatePartitionsTopicResult]]:
    def additional(topic: CreatePartitionsTopic) -> int:
        known = state.image.topics.by_name(topic.name)
        return 0 if known is None else topic.count - len(known.partitions)

    return _one_by_one(
        state,
        topics,
        lambda topic: _add(state, topic, rng),
        lambda topic, error: CreatePartitionsTopicResult(
            name=topic.name, error_code=error.code, error_message=error.own_words
        ),
        additional,
        validate_only=validate_only,
        charge=charge,
    )


def _add(
    state: ControlState, wanted: CreatePartitionsTopic, rng: Random
) -> InSlices[tuple[EncodedRecords, CreatePartitionsTopicResult]]:
    def stands_on() -> tuple[object, ...]:
        return state.image.cluster, state.image.features, state.image.topics.by_name(wanted.name)

    records = yield from _undisturbed(stands_on, lambda: _encoded_in_slices(state, _added(state, wanted, rng)))
    return records, CreatePartitionsTopicResult(name=wanted.name)


def _added(state: ControlState, wanted: CreatePartitionsTopic, rng: Random) -> Iterator[PartitionRecord]:
    """Yield the new partitions of a topic."""
    topic = state.image.topics.by_name(wanted.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    start = len(topic.partitions)
    if wanted.count == start:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {start} partition(s).")
    if wanted.count < start:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {wanted.name} currently has {start} partition(s); {wanted.count} would not be an increase.",
        )
    additional = wanted.count - start
    check_partitions_max(additional)
    if wanted.assignments is not None and len(wanted.assignments) != additional:
        raise bad_assignment(
            f"Attempted to add {additional} additional partition(s), but only {len(wanted.assignments)}"
            " assignment(s) were specified."
        )
    factor = len(topic.partitions[0].replicas)
    new = NewPartitions(state)
    if wanted.assignments is not None:
        for index, assignment in enumerate(wanted.assignments, start):
            check_manual_assignment(state, assignment.broker_ids, factor)
            yield manual_partition(state, new, index, assignment.broker_ids).to_record(topic.id, index)
    else:
        placed = place(state.usable_brokers(), partitions=additional, replication_factor=factor, rng=rng)
        for index, replicas in enumerate(placed, start):
            yield new.make(replicas).to_record(topic.id, index)


def not_found(name: str | None, topic_id: bytes) -> DeletableTopicResult:
    """Return the error for a missing topic: by name or by id, as in the request."""
    if topic_id == ZERO_UUID:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
    else:
        code, message = ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message)
