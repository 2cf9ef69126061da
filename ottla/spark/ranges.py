"""Ranges of offsets: they are limited for a micro-batch, and split into Spark's partitions. It has no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from math import ceil, floor
from typing import Any, NamedTuple

from ottla.protocol.primitives import uuid_from_str, uuid_to_str

TopicPartition = tuple[str, int]
#: Offsets by topic and partition, and under TOPIC_IDS the id of each topic.
Checkpoint = dict[str, dict[str, Any]]
#: No topic has this name: its first letter is not allowed in one.
TOPIC_IDS = "@ids"
Offsets = dict[TopicPartition, int]


class Range(NamedTuple):
    """The offsets [start, end) of one partition of a topic."""

    topic: str
    partition: int
    start: int
    end: int
    #: The id of the topic that the offsets belong to: after a topic was deleted and created again, the name is the same but the
    #: records are others.
    topic_id: bytes | None = None

    @property
    def size(self) -> int:
        return self.end - self.start


def limited(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], offsets_max: int) -> Offsets:
    """Return the ends of a micro-batch of about `offsets_max` offsets.

    Each partition gets a share by the number of its offsets.
    """
    sizes = {place: offset - start.get(place, offset) for place, offset in end.items()}
    total = sum(size for size in sizes.values() if size > 0)
    if total <= offsets_max:
        return dict(end)
    found = {}
    for place, offset in end.items():
        share = offsets_max * sizes[place] / total
        taken = ceil(share) if share < 1 else floor(share)
        found[place] = min(offset, start.get(place, offset) + taken) if sizes[place] > 0 else offset
    return found


def split(ranges: Iterable[Range], partitions_min: int | None, records_max: int | None) -> list[Range]:
    """Return the ranges that are not empty.

    The largest are split, so that there are at least `partitions_min` (if there are enough offsets), and none has more than
    `records_max` offsets.
    """
    whole = sorted(each for each in ranges if each.size > 0)
    total = sum(each.size for each in whole)
    found = []
    for each in whole:
        parts = 1
        if partitions_min is not None and len(whole) < partitions_min:
            parts = max(1, round(partitions_min * each.size / total))
        if records_max is not None:
            parts = max(parts, ceil(each.size / records_max))
        parts = min(parts, each.size)
        edges = [each.start + each.size * number // parts for number in range(parts + 1)]
        found += [each._replace(start=start, end=end) for start, end in pairwise(edges)]
    return found


def to_json(offsets: Mapping[TopicPartition, int], ids: Mapping[str, bytes]) -> Checkpoint:
    """Return offsets in the form that Spark keeps in a checkpoint: that of the JVM source, with the ids of the topics."""
    found: Checkpoint = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    found[TOPIC_IDS] = {topic: uuid_to_str(ids[topic]) for topic in found if topic in ids}
    return found


def from_json(rows: Checkpoint) -> Offsets:
    return {
        (topic, int(index)): int(offset)
        for topic, row in rows.items()
        if topic != TOPIC_IDS
        for index, offset in row.items()
    }


def ids_in(rows: Checkpoint) -> dict[str, bytes]:
    """Return the ids of the topics. A checkpoint of the JVM source has none."""
    return {topic: uuid_from_str(str(text)) for topic, text in rows.get(TOPIC_IDS, {}).items()}
