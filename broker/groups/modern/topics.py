"""The topics of a group in the metadata: which of them exist, and a hash that changes with them (KIP-1101)."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from ottla.controller.metadata.topics import TopicsImage


def metadata_hash(topics: TopicsImage, names: Iterable[str]) -> int:
    """Over ids, names and numbers of partitions; 0 if none of the topics exists. An int64, as its record has it.

    Kafka hashes racks too, and by another function: a group that moves from one to the other is assigned once more.
    """
    known = [topic for name in sorted(names) if (topic := topics.by_name(name)) is not None]
    if not known:
        return 0
    digest = sha256()
    for topic in known:
        digest.update(topic.id + len(topic.partitions).to_bytes(4, "big") + topic.name.encode() + b"\0")
    return int.from_bytes(digest.digest()[:8], "big", signed=True)


def topic_ids(topics: TopicsImage, names: Iterable[str]) -> frozenset[bytes]:
    """Those of the topics that exist."""
    return frozenset(topic_id for name in names if (topic_id := topics.id_of(name)) is not None)


def partition_counts(topics: TopicsImage, ids: Iterable[bytes]) -> dict[bytes, int]:
    return {topic_id: len(topic.partitions) for topic_id in ids if (topic := topics.by_id(topic_id)) is not None}
