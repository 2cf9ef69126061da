"""The targets of replicas when brokers are drained: one move for each partition on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from ottla.client.partitions import TopicPartition


class Drain(NamedTuple):
    """The new replicas of each partition that moves, and the partitions that no other broker can take."""

    moves: dict[TopicPartition, list[int]]
    stuck: list[TopicPartition]


def plan_drain(
    brokers: Collection[int],
    replicas: Mapping[TopicPartition, list[int]],
    racks: Mapping[int, str | None],
    places: Collection[TopicPartition] | None = None,
) -> Drain:
    """Move the replicas of all partitions, or of `places`, away from `brokers`. `racks` has the brokers that can take replicas.

    If there is a rack without a replica of the partition, a replica goes there, and within the rack to the broker with the
    fewest replicas. The new broker takes the old one's position in the list, so that it becomes the preferred leader where the
    old one was.
    """
    counts = Counter({each: 0 for each in racks if each not in brokers})
    counts.update(each for nodes in replicas.values() for each in nodes if each in counts)
    moves: dict[TopicPartition, list[int]] = {}
    stuck = []
    for place, nodes in sorted(replicas.items()):
        drained = [each for each in nodes if each in brokers]
        if not drained or (places is not None and place not in places):
            continue
        after = list(nodes)
        for each in drained:
            chosen = _choose([other for other in after if other not in brokers], counts, racks)
            if chosen is None:
                stuck.append(place)
                break
            counts[chosen] += 1
            after[after.index(each)] = chosen
        else:
            moves[place] = after
    return Drain(moves, stuck)


def _choose(others: Iterable[int], counts: Mapping[int, int], racks: Mapping[int, str | None]) -> int | None:
    taken = set(others)
    taken_racks = {racks.get(each) for each in taken}
    free = [each for each in counts if each not in taken]
    return min(free, key=lambda each: (racks[each] in taken_racks, counts[each], each), default=None)
