"""Ranges of offsets: how they are limited for a micro-batch, and split into the partitions of Spark. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from math import ceil, floor
from typing import NamedTuple

TopicPartition = tuple[str, int]
Offsets = dict[TopicPartition, int]


class Range(NamedTuple):
    """The offsets [start, end) of one partition of a topic."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def limited(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], offsets_max: int) -> Offsets:
    """Returns the ends of a micro-batch of about `offsets_max` offsets, shared out by how much each partition has."""
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
    """Returns the ranges that are not empty, the largest of them in several parts: at least `partitions_min` in all, if there are
    as many offsets, and none with more than `records_max` offsets."""
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
        found += [Range(each.topic, each.partition, *pair) for pair in pairwise(edges)]
    return found


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Returns offsets in the form that Spark keeps in a checkpoint, the same as of the JVM source."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_json(rows: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {(topic, int(index)): offset for topic, row in rows.items() for index, offset in row.items()}
