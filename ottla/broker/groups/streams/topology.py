"""The topology of a Kafka Streams application in its group: it is read from requests and written to records, and other facts
are derived from it.

A subtopology reads source topics and repartition topics, and has a task for each partition of the widest of them. It writes
repartition topics, and keeps stores whose changes are in changelog topics. Repartition and changelog topics are internal: the
broker creates them, with these numbers of partitions:

    repartition topic with a number of its own    that number
    any other repartition topic                   the most partitions that a known input of its writer has
    topics of a copartition group                 all the same number: that of its source topics, or of its repartition topics
    changelog topic                               the most partitions that an input of its subtopology has

A topic that exists keeps the number of partitions that it has, whatever is decided here. A configured topology was compared with the
topics that exist: how many tasks each subtopology has, and what is missing. It is soft state, computed again when the topology or the
metadata of its topics changes, and after a coordinator has moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import IntEnum
from heapq import heapify, heappop, heappush
from typing import NamedTuple, TypeVar

from ottla.controller.metadata.topics import TopicsImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.group_records import StreamsGroupTopologyValue
from ottla.protocol.messages import streams_group_heartbeat as messages
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from ottla.protocol.messages.shared_structs import Subtopology, TopicInfo
from ottla.protocol.messages.streams_group_heartbeat import Status
from ottla.protocol.slotted import frozen

T = TypeVar("T")


class Topology:
    """A record of a topology, indexed."""

    __slots__ = ("epoch", "required_topics", "subtopologies", "subtopology_of", "value")

    def __init__(self, value: StreamsGroupTopologyValue) -> None:
        self.value = value
        self.epoch = value.epoch
        self.subtopologies: dict[str, Subtopology] = {each.subtopology_id: each for each in value.subtopologies}
        #: The subtopology that reads a topic, by the topic's name.
        self.subtopology_of = {name: each.subtopology_id for each in value.subtopologies for name in inputs(each)}
        #: All topics that the tasks need, in the order of their names.
        self.required_topics = sorted(
            {
                name
                for each in value.subtopologies
                for name in (*inputs(each), *(topic.name for topic in each.state_changelog_topics))
            }
        )

    def has_same_content(self, value: StreamsGroupTopologyValue) -> bool:
        return self.epoch == value.epoch and self.subtopologies == {s.subtopology_id: s for s in value.subtopologies}


def inputs(subtopology: Subtopology) -> Iterator[str]:
    """Yield the names of all topics that a subtopology reads."""
    yield from subtopology.source_topics
    for topic in subtopology.repartition_source_topics:
        yield topic.name


def copartition_groups(subtopology: Subtopology) -> list[set[str]]:
    """Sets of topics that must have the same number of partitions; the record has their indexes. KafkaError for a wrong one."""
    return [
        {_at(subtopology.source_topics, index) for index in group.source_topics}
        | {_at(subtopology.repartition_source_topics, index).name for index in group.repartition_source_topics}
        for group in subtopology.copartition_groups
    ]


def _at(items: Sequence[T], index: int) -> T:
    """Return the item at the index. A negative index is out of range here, unlike in Python."""
    if not 0 <= index < len(items):
        # Kafka fails with an unexpected exception of its own (4.3.1).
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    return items[index]


def recorded(topology: messages.Topology) -> StreamsGroupTopologyValue:
    """Return the request's topology as a record. Raise KafkaError if it is invalid."""
    ids = {subtopology.subtopology_id for subtopology in topology.subtopologies}
    if topology.epoch < 0 or len(ids) < len(topology.subtopologies):
        # Kafka fails with an unexpected exception of its own (4.3.1).
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    return StreamsGroupTopologyValue(topology.epoch, topology.subtopologies)


class IncorrectlyPartitioned(Exception):
    """Topics that exist, or numbers in the topology, contradict each other: a status of the response, not an error."""


class PartitionCounts:
    """The number of partitions of each topic. `existing(name)` returns that of a topic that exists, else None. An invalid
    topology raises KafkaError.
    """

    def __init__(self, topology: Topology, existing: Callable[[str], int | None]) -> None:
        self._existing = existing
        self._subtopologies = topology.value.subtopologies
        groups = [group for each in self._subtopologies for group in copartition_groups(each)]
        #: The numbers of partitions that were decided, also for topics that exist.
        self.decided = self._of_repartition_topics()
        self._enforce_copartitioning(groups)
        self.decided |= self._of_changelog_topics()

    def of(self, name: str) -> int:
        existing = self._existing(name)
        return self.decided[name] if existing is None else existing

    def of_tasks(self, subtopology: Subtopology) -> int:
        return max(self.of(name) for name in inputs(subtopology))

    def _of_repartition_topics(self) -> dict[str, int]:
        """Return the partitions of repartition topics. Each writer decides once one of its inputs is known, in the topology's order, round by round.

        Kafka looks at all subtopologies in each round. Here a round has those with a new input only: 100,000 subtopologies
        in a row would take as many rounds.
        """
        counts = {
            topic.name: topic.partitions
            for subtopology in self._subtopologies
            for topic in subtopology.repartition_source_topics
            if topic.partitions
        }
        readers: dict[str, list[int]] = {}
        for index, subtopology in enumerate(self._subtopologies):
            for topic in subtopology.repartition_source_topics:
                readers.setdefault(topic.name, []).append(index)
        queue = [(0, index) for index in range(len(self._subtopologies))]
        heapify(queue)
        decided: set[int] = set()
        while queue:
            turn, index = heappop(queue)
            subtopology = self._subtopologies[index]
            count = None if index in decided else self._widest_known_input(subtopology, counts)
            if count is None:
                continue
            decided.add(index)
            for sink in subtopology.repartition_sink_topics:
                if sink not in counts:
                    counts[sink] = count
                    for reader in readers.get(sink, ()):
                        heappush(queue, (turn if reader > index else turn + 1, reader))
        self._check_all_decided(counts, readers)
        return counts

    def _widest_known_input(self, subtopology: Subtopology, counts: dict[str, int]) -> int | None:
        known = [counts[t.name] for t in subtopology.repartition_source_topics if t.name in counts]
        known += [count for name in subtopology.source_topics if (count := self._existing(name)) is not None]
        return max(known, default=None)

    def _check_all_decided(self, counts: dict[str, int], repartition_topics: Iterable[str]) -> None:
        if any(name not in counts for each in self._subtopologies for name in each.repartition_sink_topics):
            raise _invalid(
                "Failed to compute number of partitions for all repartition topics. There may be loops in the topology"
                " that cannot be resolved."
            )
        if any(name not in counts for name in repartition_topics):
            raise _invalid(
                "Failed to compute number of partitions for all repartition topics, because a repartition source topic"
                " is never used as a sink topic."
            )

    # ---- copartitioning

    def _enforce_copartitioning(self, groups: Iterable[set[str]]) -> None:
        infos = [topic for each in self._subtopologies for topic in each.repartition_source_topics]
        topics = {topic.name for topic in infos}
        fixed = {topic.name for topic in infos if topic.partitions}
        counts_of_fixed = {self.of(name) for name in fixed}
        for group in groups:
            if not group:
                continue
            repartition = {name: self.of(name) for name in group if name in topics}
            others = {name: self.of(name) for name in group if name not in topics}
            if others:
                count = _same(others, set(others.values()))
            elif fixed:
                # All fixed numbers of the topology are compared, not only those of the group, as in Kafka 4.3.1.
                count = _same(repartition, counts_of_fixed)
            else:
                count = max(repartition.values())
            self._apply(count, repartition, fixed)

    def _apply(self, count: int, repartition: dict[str, int], fixed: set[str]) -> None:
        for name, decided in repartition.items():
            if name in fixed and decided != count:
                raise IncorrectlyPartitioned(
                    f"Number of partitions [{decided}] of repartition topic [{name}] doesn't match number of partitions"
                    f" [{count}] of the source topic."
                )
            self.decided[name] = count

    # ---- changelog topics

    def _of_changelog_topics(self) -> dict[str, int]:
        counts = {}
        for subtopology in self._subtopologies:
            if not any(True for _ in inputs(subtopology)):
                raise _invalid(f"No source topics found for subtopology {subtopology.subtopology_id}")
            tasks = self.of_tasks(subtopology) if subtopology.state_changelog_topics else 0
            for topic in subtopology.state_changelog_topics:
                counts[topic.name] = tasks
        return counts


def _same(topics: dict[str, int], counts: set[int]) -> int:
    if len(counts) > 1:
        listed = ", ".join(f"{name}={topics[name]}" for name in sorted(topics))
        raise IncorrectlyPartitioned(f"Following topics do not have the same number of partitions: [{{{listed}}}]")
    (count,) = counts
    return count


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


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


@frozen
class ConfiguredTopology:
    epoch: int
    #: The subtopologies by their ids, in the order of the ids; None if the topics contradict the topology.
    subtopologies: Mapping[str, ConfiguredSubtopology] | None = None
    #: The status in the responses to members as long as the topology is not ready.
    status: Status | None = None
    missing: Mapping[str, CreatableTopic] = field(default_factory=dict)

    @property
    def is_ready(self) -> bool:
        return self.status is None


def configured(topology: Topology, topics: TopicsImage) -> ConfiguredTopology:
    """Return the configured topology.

    Raises KafkaError for one that cannot be: STREAMS_INVALID_TOPOLOGY, or UNKNOWN_SERVER_ERROR where Kafka has that.
    """

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
