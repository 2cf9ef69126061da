"""The existing topics of a group's subscription, and the metadata hash that changes with them (KIP-1101)."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from ottla.controller.metadata.topics import TopicsImage


def metadata_hash(topics: TopicsImage, names: Iterable[str]) -> int:
    """Returns an int64 hash of the topics' ids, names and numbers of partitions; 0 if none of the topics exists.

    Kafka's hash is another function and includes racks, so a group that moves from Kafka gets a new target once.
    """
    known = [topic for name in sorted(names) if (topic := topics.by_name(name)) is not None]
    if not known:
        return 0
    digest = sha256()
    for topic in known:
        digest.update(topic.id + len(topic.partitions).to_bytes(4, "big") + topic.name.encode() + b"\0")
    return int.from_bytes(digest.digest()[:8], "big", signed=True)


def topic_ids(topics: TopicsImage, names: Iterable[str]) -> frozenset[bytes]:
    """Returns the ids of the topics that exist."""
    return frozenset(topic_id for name in names if (topic_id := topics.id_of(name)) is not None)


def partition_counts(topics: TopicsImage, ids: Iterable[bytes]) -> dict[bytes, int]:
    return {topic_id: len(topic.partitions) for topic_id in ids if (topic := topics.by_id(topic_id)) is not None}
