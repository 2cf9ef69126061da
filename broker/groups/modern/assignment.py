"""Which partitions of which topics: what an assignor gives a member, and what the member holds at present."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

#: Topic id -> partitions. A topic without partitions has no entry, so that equal assignments compare equal.
Assignment: TypeAlias = Mapping[bytes, frozenset[int]]

NOTHING: Assignment = {}


class Subscriber(NamedTuple):
    """A member as assignors see it: what it is subscribed to, and what the target gave it so far."""

    topics: frozenset[bytes]
    current: Assignment = NOTHING
    instance_id: str | None = None


#: Members by id, and the number of partitions of each topic -> the target of each member.
Assignor: TypeAlias = Callable[[Mapping[str, Subscriber], Mapping[bytes, int]], dict[str, Assignment]]


class TopicPartitions(Protocol):
    """Requests, responses and records have a struct of their own each, with these fields."""

    topic_id: bytes
    partitions: list[int]


StructT = TypeVar("StructT")


def assignment_of(topics: Iterable[TopicPartitions]) -> Assignment:
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics if topic.partitions}


def structs_of(assignment: Assignment, struct: Callable[[bytes, list[int]], StructT]) -> list[StructT]:
    """In the order of topic ids and partitions, so that equal assignments have equal bytes."""
    return [struct(topic_id, sorted(assignment[topic_id])) for topic_id in sorted(assignment)]


def without_empty(assignment: Mapping[bytes, Iterable[int]]) -> Assignment:
    return {topic_id: frozenset(partitions) for topic_id, partitions in assignment.items() if partitions}
