"""Creation and deletion of topics, and creation of partitions. The handlers authorize the requests.

A request may be about many topics, each decided by itself: as many of them in one turn of the event loop as it has time for. A
topic is one atomic change in one turn, with all of its partitions: one of 10,000 takes some 90 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from ottla.controller.decisions.configs import ConfigDecisions, ConfigOp
from ottla.controller.decisions.control_state import ControlState
from ottla.controller.decisions.outcome import USER_RECORDS_MAX, Decision, Outcome, check_records_max
from ottla.controller.decisions.placement import place
from ottla.controller.metadata.configs import ResourceType
from ottla.controller.metadata.topic_names import check_name
from ottla.controller.metadata.topics import PartitionRegistration
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.metadata_records import MetadataRecord, RemoveTopicRecord, TopicRecord
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

#: The budget of one turn in partitions, of about 9 us each to decide, replay and encode. The turn ends with the topic that uses it up.
PARTITIONS_PER_TURN = 1_000
#: The cost of a topic besides its partitions: its configs are checked, and listed in the response.
TOPIC_COST = 12
#: The budget of one turn in deleted partitions, of about 2 us each: the index forgets every one of them.
DELETED_PER_TURN = 4_000
NO_DEFAULT = -1  # num_partitions, replication_factor: the server chooses


def _one_by_one(
    topics: Sequence[Topic],
    decide: Callable[[Topic], tuple[list[MetadataRecord], Result]],
    rejected: Callable[[Topic, KafkaError], Result],
    partitions: Callable[[Topic], int],
    *,
    validate_only: bool,
    charge: Charge,
) -> Decision[list[Result]]:
    """Decide topics one by one: an invalid topic does not hinder the others.

    `partitions`: how many the topic asks for, which counts for a rejected one, too. `charge` raises KafkaError where these are
    more than the client's quota allows; what fails otherwise is not charged.
    """
    records: list[MetadataRecord] = []
    results: list[Result] = []
    spent = before = 0
    for topic in topics:
        if spent >= PARTITIONS_PER_TURN:
            before += len(records)
            yield [] if validate_only else records
            records, spent = [], 0
        try:
            new, result = decide(topic)
            check_records_max(before + len(records) + len(new))
            charge(partitions(topic))
            records += new
        except KafkaError as error:
            result = rejected(topic, error)
        results.append(result)
        spent += TOPIC_COST + max(0, partitions(topic))
    return Outcome([] if validate_only else records, results)


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
) -> tuple[list[MetadataRecord], CreatableTopicResult]:
    check_name(topic.name)
    collision = state.index.collision(topic.name)
    if topic.name in state.image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    if collision is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{topic.name}' collides with existing topic: {collision}",
        )
    config_records = _creation_configs(state, topic, configs)
    if topic.assignments:
        partitions = _manual(state, topic)
    else:
        partitions = _placed(state, topic, rng)
    topic_id = new_uuid(rng)
    records: list[MetadataRecord] = [TopicRecord(name=topic.name, topic_id=topic_id), *config_records]
    records += [partition.to_record(topic_id, index) for index, partition in sorted(partitions.items())]
    result = CreatableTopicResult(name=topic.name, topic_id=topic_id, error_message=None)
    if describable:
        result.num_partitions = len(partitions)
        result.replication_factor = len(partitions[0].replicas)
        overrides = {config.name: config.value or "" for config in topic.configs}
        result.configs = configs.effective_topic_configs(state.image, overrides)
    else:
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        result.configs = None
    return records, result


def _creation_configs(state: ControlState, topic: CreatableTopic, configs: ConfigDecisions) -> list[MetadataRecord]:
    nulls = [config.name for config in topic.configs if config.value is None]
    if nulls:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(nulls)}")
    if not topic.configs:
        return []
    operations = {config.name: (ConfigOp.SET, config.value) for config in topic.configs}
    return configs.alter(state, ResourceType.TOPIC, topic.name, operations, new_resource=True)


def _manual(state: ControlState, topic: CreatableTopic) -> dict[int, PartitionRegistration]:
    """Return the partitions with the client's assignment."""
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
    partitions: dict[int, PartitionRegistration] = {}
    new, replication_factor = _NewPartitions(state), None
    for assignment in topic.assignments:
        index = assignment.partition_index
        if index in partitions:
            raise _bad_assignment(f"Found multiple manual partition assignments for partition {index}")
        check_manual_assignment(state, assignment.broker_ids, replication_factor)
        replication_factor = len(assignment.broker_ids)
        partitions[index] = _manual_partition(state, new, index, assignment.broker_ids)
    if sorted(partitions) != list(range(len(partitions))):
        raise _bad_assignment("partitions should be a consecutive 0-based integer sequence")
    return partitions


def _placed(state: ControlState, topic: CreatableTopic, rng: Random) -> dict[int, PartitionRegistration]:
    """Return the partitions with the controller's placement."""
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
    new = _NewPartitions(state)
    return {index: new.make(replicas) for index, replicas in enumerate(placed)}


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
        topics,
        lambda topic: (_add_partitions(state, topic, rng), CreatePartitionsTopicResult(name=topic.name)),
        lambda topic, error: CreatePartitionsTopicResult(
            name=topic.name, error_code=error.code, error_message=error.own_words
        ),
        additional,
        validate_only=validate_only,
        charge=charge,
    )


def _add_partitions(state: ControlState, wanted: CreatePartitionsTopic, rng: Random) -> list[MetadataRecord]:
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
        raise _bad_assignment(
            f"Attempted to add {additional} additional partition(s), but only {len(wanted.assignments)}"
            " assignment(s) were specified."
        )
    factor = len(topic.partitions[0].replicas)
    partitions, new = [], _NewPartitions(state)
    if wanted.assignments is not None:
        for offset, assignment in enumerate(wanted.assignments):
            check_manual_assignment(state, assignment.broker_ids, factor)
            partitions.append(_manual_partition(state, new, start + offset, assignment.broker_ids))
    else:
        placed = place(state.usable_brokers(), partitions=additional, replication_factor=factor, rng=rng)
        partitions = [new.make(replicas) for replicas in placed]
    return [partition.to_record(topic.id, start + offset) for offset, partition in enumerate(partitions)]


def check_manual_assignment(state: ControlState, replicas: Sequence[int], replication_factor: int | None) -> None:
    """Check that the brokers exist, that each is named once, and that their number is that of the other partitions."""
    if not replicas:
        raise _bad_assignment("The manual partition assignment includes an empty replica list.")
    seen = set()
    for broker_id in sorted(replicas):
        if broker_id not in state.image.cluster.brokers:
            raise _bad_assignment(
                f"The manual partition assignment includes broker {broker_id}, but no such broker is registered."
            )
        if broker_id in seen:
            raise _bad_assignment(f"The manual partition assignment includes the broker {broker_id} more than once.")
        seen.add(broker_id)
    if replication_factor is not None and len(replicas) != replication_factor:
        raise _bad_assignment(
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not"
            f" consistent with previous partitions, which have {replication_factor} replica(s)."
        )


def check_partitions_max(count: int) -> None:
    """Check the number of partitions before the placement, so that two billion partitions are not placed in vain."""
    if count > USER_RECORDS_MAX:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")


def _manual_partition(
    state: ControlState, new: _NewPartitions, index: int, replicas: Sequence[int]
) -> PartitionRegistration:
    if not any(state.image.cluster.is_active(broker) for broker in replicas):
        raise _bad_assignment(
            f"All brokers specified in the manual partition assignment for partition {index} are fenced or in"
            " controlled shutdown."
        )
    return new.make(tuple(replicas))


class _NewPartitions:
    """Makes the new partitions of one topic: all active replicas are in the ISR, because the log is empty; the first of them leads."""

    def __init__(self, state: ControlState) -> None:
        brokers = state.image.cluster.brokers
        self._inactive = frozenset(broker_id for broker_id, broker in brokers.items() if not broker.active)
        self._directories = {broker_id: state.default_directory(broker_id) for broker_id in brokers}

    def make(self, replicas: tuple[int, ...]) -> PartitionRegistration:
        isr = replicas
        if not self._inactive.isdisjoint(replicas):
            isr = tuple(broker for broker in replicas if broker not in self._inactive)
        if not isr:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Unable to replicate the partition {len(replicas)} time(s): All brokers are currently fenced or in"
                " controlled shutdown.",
            )
        directories = tuple([self._directories[broker] for broker in replicas])
        return PartitionRegistration(replicas=replicas, isr=isr, leader=isr[0], directories=directories)


def not_found(name: str | None, topic_id: bytes) -> DeletableTopicResult:
    """Return the error for a missing topic: by name or by id, as in the request."""
    if topic_id == ZERO_UUID:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
    else:
        code, message = ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message)


def _bad_assignment(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
