"""A topology that was compared with the topics that exist: how many tasks each subtopology has, and what is missing.

Soft state: it is computed again when the topology or the metadata of its topics changes, and after a coordinator has moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from ottla.broker.groups.state.partition_counts import IncorrectlyPartitioned, PartitionCounts
from ottla.broker.groups.state.topology import Topology
from ottla.controller.metadata.topics import TopicsImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from ottla.protocol.messages.shared_structs import Subtopology, TopicInfo
from ottla.protocol.messages.streams_group_heartbeat import Status

#: Texts for people name this many topics.
NAMED_TOPICS_MAX = 3
BY_DEFAULT = -1


class StatusCode(IntEnum):
    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class ConfiguredSubtopology(NamedTuple):
    subtopology: Subtopology
    tasks: int
    #: Partitions of each internal topic, by its name.
    counts: Mapping[str, int]

    @property
    def is_stateful(self) -> bool:
        return bool(self.subtopology.state_changelog_topics)


@dataclass(frozen=True, slots=True)
class ConfiguredTopology:
    epoch: int
    #: By their ids, in the order of these; None if the topics contradict the topology.
    subtopologies: Mapping[str, ConfiguredSubtopology] | None = None
    #: In the responses to members as long as the topology is not ready.
    status: Status | None = None
    missing: Mapping[str, CreatableTopic] = field(default_factory=dict)

    @property
    def is_ready(self) -> bool:
        return self.status is None


def configured(topology: Topology, topics: TopicsImage) -> ConfiguredTopology:
    """KafkaError for a topology that cannot be: STREAMS_INVALID_TOPOLOGY, or UNKNOWN_SERVER_ERROR where Kafka has that."""

    def existing(name: str) -> int | None:
        topic = topics.by_name(name)
        return None if topic is None else len(topic.partitions)

    missing = {n for each in topology.value.subtopologies for n in each.source_topics if existing(n) is None}
    if missing:
        text = f"Source topics {_listed(missing)} are missing."
        return ConfiguredTopology(topology.epoch, status=Status(StatusCode.MISSING_SOURCE_TOPICS, text))
    try:
        counts = PartitionCounts(topology, existing)
        subtopologies = {
            subtopology_id: _configured(topology.subtopologies[subtopology_id], counts)
            for subtopology_id in sorted(topology.subtopologies)
        }
        internal = {topic.name: topic for each in subtopologies.values() for topic in _creatable(each)}
        for name in topology.required_topics:
            found = existing(name)
            expected = None if found is None else internal.pop(name, None)
            if expected is not None and expected.num_partitions != found:
                raise IncorrectlyPartitioned(
                    f"Existing topic {name} has different number of partitions: expected {expected.num_partitions},"
                    f" found {found}"
                )
    except IncorrectlyPartitioned as error:
        status = Status(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, str(error))
        return ConfiguredTopology(topology.epoch, status=status)
    if not internal:
        return ConfiguredTopology(topology.epoch, subtopologies)
    status = Status(StatusCode.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {_listed(internal)}")
    return ConfiguredTopology(topology.epoch, subtopologies, status, internal)


def internal_topics(subtopology: Subtopology) -> Iterator[TopicInfo]:
    yield from subtopology.repartition_source_topics
    yield from subtopology.state_changelog_topics


def _configured(subtopology: Subtopology, counts: PartitionCounts) -> ConfiguredSubtopology:
    # A number in the topology wins over the decided one. Twice the same name is an unexpected exception in Kafka 4.3.1.
    names = [topic.name for topic in subtopology.repartition_source_topics]
    changelogs = [topic.name for topic in subtopology.state_changelog_topics]
    partitions = {topic.name: topic.partitions or counts.decided[topic.name] for topic in internal_topics(subtopology)}
    is_twice = len(set(names)) < len(names) or len(set(changelogs)) < len(changelogs)
    if is_twice or any(count < 1 for count in partitions.values()):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    return ConfiguredSubtopology(subtopology, counts.of_tasks(subtopology), partitions)


def _creatable(configured: ConfiguredSubtopology) -> Iterator[CreatableTopic]:
    for topic in internal_topics(configured.subtopology):
        configs = {config.key: config.value for config in topic.topic_configs}
        if len(configs) < len(topic.topic_configs):
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        yield CreatableTopic(
            name=topic.name,
            num_partitions=configured.counts[topic.name],
            replication_factor=topic.replication_factor or BY_DEFAULT,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )


def _listed(names: Iterable[str]) -> str:
    named = sorted(names)
    more = len(named) - NAMED_TOPICS_MAX
    text = ", ".join(named[:NAMED_TOPICS_MAX])
    return f"{text} and {more} additional topics" if more > 0 else text
