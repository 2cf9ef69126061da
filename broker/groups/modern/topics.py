"""The existing topics of a group's subscription, and the metadata hash that changes with them (KIP-1101).

The hash is Kafka's, so that a group which moves from one to the other is not assigned once more: XXH3 over the fields as hash4j writes
them, numbers with the low byte first, and texts in UTF-16 followed by their length.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterable

from xxhash import xxh3_64_intdigest

from ottla.controller.metadata.topics import TopicImage, TopicsImage
from ottla.protocol.errors import ErrorCode, KafkaError

#: The version of the hash's layout.
MAGIC = b"\0"
#: The limit of topics that a member names. 10,000 take some 15 ms of the event loop; names of 100 characters fill a record then.
SUBSCRIBED_TOPICS_MAX = 10_000


def check_subscription(topics: int) -> None:
    """Raises KafkaError INVALID_REQUEST for more topics than a member may name."""
    if topics > SUBSCRIBED_TOPICS_MAX:
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
    """Whether nothing is left of a name or regular expression when so many members leave."""
    return any(key in counts and counts[key] <= number for key, number in leaving.items())


class TopicHashes:
    """Hashes of topics, each computed once for each change of its topic; `rack_of(broker_id)` is in the newest metadata.

    As in Kafka a broker that gets another rack changes nothing until its topics change.
    """

    def __init__(self, rack_of: Callable[[int], str | None]) -> None:
        self._rack_of = rack_of
        self._known: dict[bytes, tuple[TopicImage, int]] = {}

    def of_group(self, topics: TopicsImage, names: Iterable[str]) -> int:
        """An int64, as its record has it; 0 if none of the topics exists."""
        if len(self._known) > 2 * len(topics):
            # Topics were deleted since.
            self._known.clear()
        known = [topic for name in sorted(names) if (topic := topics.by_name(name)) is not None]
        if not known:
            return 0
        return _hash(struct.pack(f"<{len(known)}q", *map(self._of_topic, known)))

    def _of_topic(self, topic: TopicImage) -> int:
        image, value = self._known.get(topic.id, (None, 0))
        if image is not topic:
            value = topic_hash(topic, self._rack_of)
            self._known[topic.id] = topic, value
        return value


def topic_hash(topic: TopicImage, rack_of: Callable[[int], str | None]) -> int:
    """Of its id, name, and the racks of each partition's replicas."""
    parts = [MAGIC, topic.id[7::-1], topic.id[:7:-1], _text(topic.name), _int(len(topic.partitions))]
    for index, partition in topic.sorted_partitions():
        parts.append(_int(index))
        for rack in sorted(rack for broker_id in partition.replicas if (rack := rack_of(broker_id)) is not None):
            parts += [_int(_length(rack)), _text(rack)]
    return _hash(b"".join(parts))


def _hash(data: bytes) -> int:
    value: int = xxh3_64_intdigest(data)
    return value - (1 << 64) if value >> 63 else value


def _int(value: int) -> bytes:
    return value.to_bytes(4, "little")


def _length(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def _text(text: str) -> bytes:
    return text.encode("utf-16-le") + _int(_length(text))


def topic_ids(topics: TopicsImage, names: Iterable[str]) -> frozenset[bytes]:
    """Returns the ids of the topics that exist."""
    return frozenset(topic_id for name in names if (topic_id := topics.id_of(name)) is not None)


def partition_counts(topics: TopicsImage, ids: Iterable[bytes]) -> dict[bytes, int]:
    return {topic_id: len(topic.partitions) for topic_id in ids if (topic := topics.by_id(topic_id)) is not None}
