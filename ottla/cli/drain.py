"""Where the replicas of a broker go when it is drained: one move for each of its partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.client.leaders import TopicPartition


class Drain(NamedTuple):
    """The new replicas of each partition that moves, and the partitions for which there is no other broker."""

    moves: dict[TopicPartition, list[int]]
    stuck: list[TopicPartition]


def plan_drain(broker: int, replicas: Mapping[TopicPartition, list[int]], racks: Mapping[int, str | None]) -> Drain:
    """Give each replica of the broker to another of `racks`, the brokers that can take some.

    It goes to a rack that has no replica of the partition yet if there is one, and there to the broker with the fewest
    replicas. The place in the list stays, so that the new broker leads where the old one was preferred.
    """
    counts = Counter({each: 0 for each in racks if each != broker})
    counts.update(each for nodes in replicas.values() for each in nodes if each in counts)
    moves: dict[TopicPartition, list[int]] = {}
    stuck = []
    for place, nodes in sorted(replicas.items()):
        if broker not in nodes:
            continue
        others = [each for each in nodes if each != broker]
        chosen = _choose(others, counts, racks)
        if chosen is None:
            stuck.append(place)
            continue
        counts[chosen] += 1
        moves[place] = [chosen if each == broker else each for each in nodes]
    return Drain(moves, stuck)


def _choose(others: Iterable[int], counts: Mapping[int, int], racks: Mapping[int, str | None]) -> int | None:
    taken = set(others)
    taken_racks = {racks.get(each) for each in taken}
    free = [each for each in counts if each not in taken]
    return min(free, key=lambda each: (racks[each] in taken_racks, counts[each], each), default=None)
