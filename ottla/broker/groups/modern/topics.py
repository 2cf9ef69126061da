"""The existing topics of a group's subscription, and the metadata hash that changes with them (KIP-1101).

The hash is Kafka's, so that a group which moves between Kafka and Ottla is not assigned again: XXH3 over the fields as hash4j
writes them, numbers with the low byte first, and texts in UTF-16 followed by their length.
"""

from __future__ import annotations

import logging
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from xxhash import xxh3_64_intdigest

from ottla.broker.coordinator.turns import TurnQueue
from ottla.controller.metadata.topics import TopicImage, TopicsImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.client_bounds import shown

log = logging.getLogger(__name__)

#: The version of the hash's layout.
MAGIC = b"\0"
#: The limit of topics that a member names. 10,000 take some 15 ms of the event loop; names of 100 characters fill a record then.
SUBSCRIBED_TOPICS_MAX = 10_000
#: Topics that are hashed in the turn that asks for them, some 10 ms. A coordinator that starts knows no hash yet.
HASHED_AT_ONCE_MAX = 4_000


def check_subscription(group_id: str, topics: int) -> None:
    """Raise KafkaError INVALID_REQUEST for more topics than a member may name."""
    if topics > SUBSCRIBED_TOPICS_MAX:
        log.info("[GroupId %s] Refused a member that names %d topics.", shown(group_id), topics)
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"A member may subscribe to {SUBSCRIBED_TOPICS_MAX} topics by name."
        )


def count_names(counts: Counter[str], keys: Iterable[str], by: int) -> None:
    """Count how many members are subscribed to each name, `by` +1 or -1: a member that leaves costs no look at the others."""
    for key in keys:
        counts[key] += by
        if not counts[key]:
            del counts[key]


def narrows(counts: Counter[str], leaving: Counter[str]) -> bool:
    """Return whether a name or regular expression has no member left after `leaving`, the number of members that leave it."""
    return any(key in counts and counts[key] <= number for key, number in leaving.items())


NO_HASH: tuple[TopicImage | None, int] = None, 0


class TopicHashes:
    """Hashes of topics, each computed once for each change of its topic; `rack_of(broker_id)` is in the newest metadata.

    As in Kafka a broker that gets another rack changes nothing until its topics change.
    """

    def __init__(self, rack_of: Callable[[int], str | None], turns: TurnQueue) -> None:
        self._rack_of = rack_of
        self._turns = turns
        self._known: dict[bytes, tuple[TopicImage, int]] = {}
        self._is_hashing = False

    def of_group(self, topics: TopicsImage, names: Iterable[str], *, at_once: bool = False) -> int:
        """Return the hash of the topics as an int64, as the group's record has it; 0 if none of the topics exists.

        Raises:
            KafkaError: COORDINATOR_LOAD_IN_PROGRESS while many topics are hashed in the next turns, unless it is needed `at_once`.
        """
        if len(self._known) > 2 * len(topics):
            # Topics were deleted since.
            self._known.clear()
        known = [topic for name in sorted(names) if (topic := topics.by_name(name)) is not None]
        if not known:
            return 0
        if not at_once and len(known) > HASHED_AT_ONCE_MAX:
            self._check(known)
        racks = Racks(self._rack_of)
        return _hash(struct.pack(f"<{len(known)}q", *[self._of_topic(topic, racks) for topic in known]))

    def _check(self, topics: Sequence[TopicImage]) -> None:
        unknown = [topic for topic in topics if self._known.get(topic.id, NO_HASH)[0] is not topic]
        if len(unknown) <= HASHED_AT_ONCE_MAX:
            return
        if not self._is_hashing:
            self._is_hashing = True
            self._turns.add(self._hash_all(unknown), self._hashed)
        raise KafkaError(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"The metadata hashes of {len(unknown)} topics are being computed."
        )

    def _hash_all(self, topics: Iterable[TopicImage]) -> Iterator[None]:
        racks = Racks(self._rack_of)
        for topic in topics:
            self._of_topic(topic, racks)
            yield

    def _hashed(self, error: Exception | None) -> None:
        assert error is None, "a hash is computed of what exists"
        self._is_hashing = False

    def _of_topic(self, topic: TopicImage, racks: Racks) -> int:
        image, value = self._known.get(topic.id, NO_HASH)
        if image is not topic:
            value = topic_hash(topic, racks)
            self._known[topic.id] = topic, value
        return value


class Racks(dict[tuple[int, ...], bytes]):
    """The bytes of the racks of a partition's replicas: many partitions have the same ones, in the same order."""

    def __init__(self, rack_of: Callable[[int], str | None]) -> None:
        self._rack_of = rack_of

    def __missing__(self, replicas: tuple[int, ...]) -> bytes:
        racks = sorted(rack for broker_id in replicas if (rack := self._rack_of(broker_id)) is not None)
        found = self[replicas] = b"".join(_int(_length(rack)) + _text(rack) for rack in racks)
        return found


def topic_hash(topic: TopicImage, racks: Racks) -> int:
    """Return the hash of a topic: of its id, its name, and the racks of each partition's replicas."""
    parts = [MAGIC, topic.id[7::-1], topic.id[:7:-1], _text(topic.name), _int(len(topic.partitions))]
    for index, partition in topic.sorted_partitions():
        parts += index.to_bytes(4, "little"), racks[partition.replicas]
    return _hash(b"".join(parts))


def _hash(data: bytes) -> int:
    value: int = xxh3_64_intdigest(data)
    return value - (1 << 64) if value >> 63 else value


def _int(value: int) -> bytes:
    return value.to_bytes(4, "little")


def _length(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def _text(text: str) -> bytes:
    units = text.encode("utf-16-le")
    return units + _int(len(units) // 2)


def topic_ids(topics: TopicsImage, names: Iterable[str]) -> frozenset[bytes]:
    """Return the ids of the topics that exist."""
    return frozenset(topic_id for name in names if (topic_id := topics.id_of(name)) is not None)


def partition_counts(topics: TopicsImage, ids: Iterable[bytes]) -> dict[bytes, int]:
    return {topic_id: len(topic.partitions) for topic_id in ids if (topic := topics.by_id(topic_id)) is not None}
