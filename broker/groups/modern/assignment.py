"""Assignments: sets of partitions by topic, of a member's target or its current assignment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

#: Topic id -> partitions. A topic without partitions has no entry, so that equal assignments compare equal.
Assignment: TypeAlias = Mapping[bytes, frozenset[int]]

NOTHING: Assignment = {}


class Subscriber(NamedTuple):
    """The input of an assignor for one member: its subscription and its present target."""

    topics: frozenset[bytes]
    current: Assignment = NOTHING
    instance_id: str | None = None


#: Members by id, and the number of partitions of each topic -> the target of each member.
Assignor: TypeAlias = Callable[[Mapping[str, Subscriber], Mapping[bytes, int]], dict[str, Assignment]]


class TopicPartitions(Protocol):
    """The fields that the structs of requests, responses and records have in common."""

    topic_id: bytes
    partitions: list[int]


StructT = TypeVar("StructT")


def assignment_of(topics: Iterable[TopicPartitions]) -> Assignment:
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics if topic.partitions}


def structs_of(assignment: Assignment, struct: Callable[[bytes, list[int]], StructT]) -> list[StructT]:
    """Returns the structs in the order of topic ids and partitions, so that equal assignments have equal bytes."""
    return [struct(topic_id, sorted(assignment[topic_id])) for topic_id in sorted(assignment)]


def without_empty(assignment: Mapping[bytes, Iterable[int]]) -> Assignment:
    return {topic_id: frozenset(partitions) for topic_id, partitions in assignment.items() if partitions}
