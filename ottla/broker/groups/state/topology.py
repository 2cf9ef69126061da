"""The topology of a Kafka Streams application as its group has it: read from requests, written to records, and what follows from it.

A subtopology reads source topics and repartition topics, and has a task for each partition of the widest of them. It writes
repartition topics, and keeps stores whose changes are in changelog topics. Repartition and changelog topics are internal: the
broker creates them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.streams_group_records import StreamsGroupTopologyValue
from ottla.protocol.messages import streams_group_heartbeat as messages
from ottla.protocol.messages.shared_structs import Subtopology

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
    """The names of all topics that a subtopology reads."""
    yield from subtopology.source_topics
    for topic in subtopology.repartition_source_topics:
        yield topic.name


def copartition_groups(subtopology: Subtopology) -> list[set[str]]:
    """Sets of topics that must have the same number of partitions; the record has their indexes. IndexError for a wrong one."""
    return [
        {_at(subtopology.source_topics, index) for index in group.source_topics}
        | {_at(subtopology.repartition_source_topics, index).name for index in group.repartition_source_topics}
        for group in subtopology.copartition_groups
    ]


def _at(items: Sequence[T], index: int) -> T:
    """The item at the index; a negative index is out of range here, unlike in Python."""
    if index < 0:
        raise IndexError(index)
    return items[index]


def recorded(topology: messages.Topology) -> StreamsGroupTopologyValue:
    """The request's topology as a record. KafkaError if it can be none."""
    ids = {subtopology.subtopology_id for subtopology in topology.subtopologies}
    if topology.epoch < 0 or len(ids) < len(topology.subtopologies):
        # Kafka fails with an unexpected exception of its own (4.3.1).
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    return StreamsGroupTopologyValue(topology.epoch, topology.subtopologies)
