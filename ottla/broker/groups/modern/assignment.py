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
#: A topic id, or a subtopology.
KeyT = TypeVar("KeyT", bytes, str)


def assignment_of(topics: Iterable[TopicPartitions]) -> Assignment:
    """Returns the partitions of all entries; a request may have several of one topic."""
    found: dict[bytes, frozenset[int]] = {}
    for topic in topics:
        if topic.partitions:
            found[topic.topic_id] = found.get(topic.topic_id, frozenset()) | frozenset(topic.partitions)
    return found


def structs_of(assignment: Assignment, struct: Callable[[bytes, list[int]], StructT]) -> list[StructT]:
    """Returns the structs in the order of topic ids and partitions, so that equal assignments have equal bytes."""
    return [struct(topic_id, sorted(assignment[topic_id])) for topic_id in sorted(assignment)]


def without_empty(assignment: Mapping[bytes, Iterable[int]]) -> Assignment:
    return {topic_id: frozenset(partitions) for topic_id, partitions in assignment.items() if partitions}


def with_epochs(rows: Iterable[tuple[KeyT, list[int], list[int] | None]], epoch: int) -> dict[KeyT, dict[int, int]]:
    """Returns the epoch at which each partition was assigned, of a record's keys, partitions and epochs.

    Records before Kafka 4.3 have no epochs: the member's, `epoch`, counts then, which no earlier commit has.
    """
    return {
        key: dict(zip(partitions, epochs, strict=True)) if epochs else dict.fromkeys(partitions, epoch)
        for key, partitions, epochs in rows
        if partitions
    }


def structs_with_epochs(
    held: Mapping[KeyT, Mapping[int, int]], struct: Callable[[KeyT, list[int], list[int] | None], StructT]
) -> list[StructT]:
    """Returns the structs in the order of keys and partitions, so that equal assignments have equal bytes."""
    return [struct(key, sorted(held[key]), [epoch for _, epoch in sorted(held[key].items())]) for key in sorted(held)]
