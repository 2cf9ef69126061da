"""Assignments: sets of partitions by topic, of a member's target or its current assignment, and sets of tasks by subtopology.

Classic members of a consumer group have theirs, and their subscription, as bytes of the embedded ConsumerProtocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from ottla.controller.metadata.topics import TopicsImage
from ottla.protocol.compile import encode
from ottla.protocol.errors import ProtocolError
from ottla.protocol.internal_topics.control_messages import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_versioned,
)
from ottla.protocol.messages.shared_structs import TopicIdPartitions, TopicNamePartitions
from ottla.protocol.schema import info_of

#: Topic id -> partitions. A topic without partitions has no entry, so that equal assignments compare equal.
Assignment: TypeAlias = Mapping[bytes, frozenset[int]]

NOTHING: Assignment = {}

#: Topic id and number.
Partition: TypeAlias = tuple[bytes, int]


class Subscriber(NamedTuple):
    """The input of an assignor for one member: its subscription and its present target."""

    topics: frozenset[bytes]
    current: Assignment = NOTHING
    instance_id: str | None = None


def subscribers_of(members: Mapping[str, Subscriber], in_order: Iterable[str]) -> dict[bytes, list[str]]:
    """Return the subscribers of each topic, in this order of the members."""
    subscribers: dict[bytes, list[str]] = {}
    for member_id in in_order:
        for topic_id in members[member_id].topics:
            subscribers.setdefault(topic_id, []).append(member_id)
    return subscribers


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
    """Return the partitions of all entries; a request may have several of one topic."""
    found: dict[bytes, frozenset[int]] = {}
    for topic in topics:
        if topic.partitions:
            found[topic.topic_id] = found.get(topic.topic_id, frozenset()) | frozenset(topic.partitions)
    return found


def structs_of(assignment: Mapping[KeyT, Iterable[int]], struct: Callable[[KeyT, list[int]], StructT]) -> list[StructT]:
    """Return the structs in the order of keys and partitions, so that equal assignments have equal bytes."""
    return [struct(key, sorted(assignment[key])) for key in sorted(assignment)]


def partitions_of(held: Mapping[KeyT, Iterable[int]]) -> dict[KeyT, frozenset[int]]:
    """Return the partitions that are held, without the epochs since which they are."""
    return {key: frozenset(partitions) for key, partitions in held.items()}


def without_empty(assignment: Mapping[KeyT, Iterable[int]]) -> dict[KeyT, frozenset[int]]:
    return {key: frozenset(partitions) for key, partitions in assignment.items() if partitions}


def union(some: Mapping[KeyT, frozenset[int]], others: Mapping[KeyT, frozenset[int]]) -> dict[KeyT, frozenset[int]]:
    return {key: some.get(key, frozenset()) | others.get(key, frozenset()) for key in {**some, **others}}


def without(some: Mapping[KeyT, frozenset[int]], others: Mapping[KeyT, frozenset[int]]) -> dict[KeyT, frozenset[int]]:
    return {key: left for key, partitions in some.items() if (left := partitions - others.get(key, frozenset()))}


def is_subset(some: Mapping[KeyT, frozenset[int]], others: Mapping[KeyT, frozenset[int]]) -> bool:
    return all(partitions <= others.get(key, frozenset()) for key, partitions in some.items())


def with_epochs(rows: Iterable[tuple[KeyT, list[int], list[int] | None]], epoch: int) -> dict[KeyT, dict[int, int]]:
    """Return the epoch at which each partition was assigned, from a record's keys, partitions and epochs.

    Records before Kafka 4.3 have no epochs. The member's, `epoch`, is taken for all: no commit with an earlier one is accepted
    then.
    """
    return {
        key: dict(zip(partitions, epochs, strict=True)) if epochs else dict.fromkeys(partitions, epoch)
        for key, partitions, epochs in rows
        if partitions
    }


def structs_with_epochs(
    held: Mapping[KeyT, Mapping[int, int]], struct: Callable[[KeyT, list[int], list[int] | None], StructT]
) -> list[StructT]:
    """Return the structs in the order of keys and partitions, so that equal assignments have equal bytes."""
    return [struct(key, sorted(held[key]), [epoch for _, epoch in sorted(held[key].items())]) for key in sorted(held)]


# ---- the bytes of classic members

#: The protocol type of consumers.
CONSUMER = "consumer"


class CustomAssignor(ProtocolError):
    """An assignment has data of an assignor of the client."""


def subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """Return the decoded subscription. Raises ProtocolError if it is malformed."""
    return decode_versioned(ConsumerProtocolSubscription, metadata, newer_too=True)[0]


def owned(subscribed: ConsumerProtocolSubscription, topics: TopicsImage) -> list[TopicIdPartitions]:
    """Return the partitions that the member says it has, without topics that are gone."""
    return [
        TopicIdPartitions(topic_id, each.partitions)
        for each in subscribed.owned_partitions
        if (topic_id := topics.id_of(each.topic)) is not None
    ]


def assigned(assignment: bytes, topics: TopicsImage) -> Assignment:
    """Return the decoded assignment. Raises ProtocolError if it is malformed, CustomAssignor if it has data that would be lost."""
    if not assignment:
        return {}
    value = decode_versioned(ConsumerProtocolAssignment, assignment, newer_too=True)[0]
    if value.user_data:
        raise CustomAssignor("userData from a custom assignor would be lost")
    return {
        topic_id: frozenset(each.partitions)
        for each in value.assigned_partitions
        if each.partitions and (topic_id := topics.id_of(each.topic)) is not None
    }


def assignment_bytes(assignment: Assignment, topics: TopicsImage, subscription_metadata: bytes) -> bytes:
    """Return the assignment, encoded in the version of the member's subscription."""
    versions = info_of(ConsumerProtocolAssignment).versions
    version = min(int.from_bytes(subscription_metadata[:2], "big", signed=True), versions.high)
    value = ConsumerProtocolAssignment(
        [
            TopicNamePartitions(topic.name, sorted(partitions))
            for topic_id, partitions in sorted(assignment.items())
            if (topic := topics.by_id(topic_id)) is not None
        ]
    )
    return version.to_bytes(2, "big") + encode(value, version)


def pairs(assignment: Assignment) -> frozenset[tuple[bytes, int]]:
    return frozenset((topic_id, partition) for topic_id, p in assignment.items() for partition in p)
