"""A plan that evens the load of brokers: where the replicas of each partition go, and which of them is to lead.

It has no I/O. These are the aims, the more important first; a later step never undoes an earlier one:

    1. no replica on a broker that is drained or gone
    2. the replicas of a partition in as many racks as there are
    3. the same number of replicas on each broker
    4. the same number of bytes, by replicas that change places
    5. the same number of preferred leaders, by the order of replicas, which moves no bytes

Each step is greedy: it moves the replica that helps most from the fullest broker to the emptiest. The plan is not always the
smallest one, but the search ends, and nothing moves where the load is even.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from heapq import nlargest, nsmallest
from typing import NamedTuple

from ottla.client.partitions import TopicPartition

#: Bytes count as even within this share of the mean: a plan that moves gigabytes for a percent is no help.
TOLERANCE = 0.1
#: An exchange looks at this many replicas of the fullest broker, the largest ones.
EXCHANGED_MAX = 100
EXCHANGES_MAX = 2_000

Replicas = dict[TopicPartition, list[int]]
Racks = Mapping[int, str | None]


class Load(NamedTuple):
    """The load of one broker. The first of a partition's replicas counts as its leader."""

    leaders: int
    replicas: int
    bytes: int


class Balance(NamedTuple):
    """A plan: the replicas of all partitions after it, and the partitions for which there are too few brokers."""

    replicas: Replicas
    stuck: list[TopicPartition]


def loads(
    replicas: Mapping[TopicPartition, list[int]], sizes: Mapping[TopicPartition, int], brokers: Iterable[int]
) -> dict[int, Load]:
    """Return the load of each broker that has replicas or is named."""
    leaders, counts, amounts = Counter[int](), Counter[int](), Counter[int]()
    for place, nodes in replicas.items():
        leaders[nodes[0]] += 1
        for node in nodes:
            counts[node] += 1
            amounts[node] += sizes.get(place, 0)
    return {node: Load(leaders[node], counts[node], amounts[node]) for node in sorted({*brokers, *counts})}


def plan_balance(
    current: Mapping[TopicPartition, list[int]],
    sizes: Mapping[TopicPartition, int],
    racks: Racks,
    tolerance: float = TOLERANCE,
    among: Iterable[TopicPartition] | None = None,
) -> Balance:
    """Plan over the brokers of `racks`, which are those that can take replicas; partitions that are not `among` stay where they are."""
    plan = _Plan(current, sizes, racks, among)
    plan.empty_others()
    plan.spread_over_racks()
    plan.even_counts()
    # An exchange may bring a replica into a new rack, and only then another replica can move.
    while plan.even_bytes(tolerance) and plan.even_counts():
        pass
    plan.even_leaders()
    return Balance(plan.replicas, sorted(plan.stuck))


class _Plan:
    """The replicas as the plan has them so far, and what each broker holds of them."""

    def __init__(
        self,
        current: Mapping[TopicPartition, list[int]],
        sizes: Mapping[TopicPartition, int],
        racks: Racks,
        among: Iterable[TopicPartition] | None,
    ) -> None:
        self.replicas: Replicas = {place: list(nodes) for place, nodes in sorted(current.items()) if nodes}
        self.movable = sorted(self.replicas if among is None else set(among) & self.replicas.keys())
        self.sizes, self.racks = sizes, racks
        self.rack_count = len(set(racks.values()))
        self.stuck: list[TopicPartition] = []
        self.held: dict[int, set[TopicPartition]] = {node: set() for node in sorted(racks)}
        self.bytes: Counter[int] = Counter()
        self.fixed: Counter[int] = Counter()
        #: Pairs of a broker and another, between which no replica can move. Without them, each replica that a full broker could give is
        #: tried again after every move: with 20,000 partitions on 50 brokers a plan took more than ten minutes.
        self.closed: set[tuple[int, int]] = set()
        can_move = set(self.movable)
        for place, nodes in self.replicas.items():
            for node in nodes:
                self.bytes[node] += self.size(place)
                if place not in can_move:
                    self.fixed[node] += 1
                elif node in self.held:
                    self.held[node].add(place)

    def size(self, place: TopicPartition) -> int:
        return self.sizes.get(place, 0)

    def count(self, node: int) -> int:
        return len(self.held[node]) + self.fixed[node]

    def rack_spread(self, nodes: Iterable[int]) -> int:
        return len({self.racks.get(node) for node in nodes if node in self.racks})

    def move(self, place: TopicPartition, source: int, target: int) -> None:
        """Replace one replica; its place in the list stays."""
        nodes = self.replicas[place]
        nodes[nodes.index(source)] = target
        if source in self.held:
            self.held[source].discard(place)
        self.held[target].add(place)
        self.bytes[source] -= self.size(place)
        self.bytes[target] += self.size(place)
        self.closed -= {
            (node, other)
            for node in nodes
            for other in self.held
            if (node, other) in self.closed and self.may_move(place, node, other)
        }

    def may_move(self, place: TopicPartition, source: int, target: int) -> bool:
        """Return whether the move keeps one replica a broker, and does not put the partition into fewer racks."""
        nodes, racks = self.replicas[place], self.racks
        if target in nodes:
            return False
        if source not in racks or racks[source] == racks[target]:
            return True
        others = {racks[node] for node in nodes if node != source and node in racks}
        return racks[source] in others or racks[target] not in others

    # -- 1, 2: where replicas must and should be -----------------------------------------------------------------------

    def empty_others(self) -> None:
        for place in self.movable:
            for node in [node for node in self.replicas[place] if node not in self.racks]:
                target = self._best(place, node)
                if target is None:
                    self.stuck.append(place)
                    break
                self.move(place, node, target)

    def spread_over_racks(self) -> None:
        for place in self.movable:
            nodes = self.replicas[place]
            for node in reversed(nodes.copy()):
                if self.rack_spread(nodes) >= min(len(nodes), self.rack_count):
                    break
                target = self._best(place, node)
                after = [target if each == node else each for each in nodes]
                if target is not None and self.rack_spread(
                    each for each in after if each is not None
                ) > self.rack_spread(nodes):
                    self.move(place, node, target)

    def _best(self, place: TopicPartition, leaving: int) -> int | None:
        """Return the broker for a replica that leaves another: in a new rack if there is one, and there the emptiest."""
        others = [node for node in self.replicas[place] if node != leaving]
        taken = {self.racks.get(node) for node in others}
        free = [node for node in self.held if node not in self.replicas[place]]
        return min(
            free, key=lambda node: (self.racks[node] in taken, self.count(node), self.bytes[node], node), default=None
        )

    # -- 3, 4: the same for all brokers --------------------------------------------------------------------------------

    def even_counts(self) -> bool:
        """Move replicas from the broker with the most to one with at least two less. Return whether one was moved."""
        has_moved = False
        while True:
            order = sorted(self.held, key=lambda node: (self.count(node), self.bytes[node], node))
            for source in reversed(order):
                found = self._moved_to_emptier(source, order)
                if found:
                    has_moved = True
                    break
            else:
                return has_moved

    def _moved_to_emptier(self, source: int, order: list[int]) -> bool:
        for target in order:
            if self.count(source) - self.count(target) < 2:
                return False
            if (source, target) in self.closed:
                continue
            best = (self.bytes[source] - self.bytes[target]) / 2
            fitting = [place for place in self.held[source] if self.may_move(place, source, target)]
            if fitting:
                self.move(min(fitting, key=lambda place: (abs(self.size(place) - best), place)), source, target)
                return True
            self.closed.add((source, target))
        return False

    def even_bytes(self, tolerance: float) -> bool:
        """Exchange a large replica of the fullest broker for a smaller one of another. Return whether one was exchanged."""
        if not self.held:
            return False
        has_moved = False
        mean = sum(self.bytes[node] for node in self.held) / len(self.held)
        for _ in range(EXCHANGES_MAX):
            source = max(self.held, key=lambda node: (self.bytes[node], node))
            if self.bytes[source] <= mean * (1 + tolerance):
                break
            largest = nlargest(EXCHANGED_MAX, self.held[source], key=lambda place: (self.size(place), place))
            for target in sorted(self.held, key=lambda node: (self.bytes[node], node)):
                if target != source and self._exchanged(source, target, largest):
                    has_moved = True
                    break
            else:
                break
        return has_moved

    def _exchanged(self, source: int, target: int, largest: list[TopicPartition]) -> bool:
        """Make the exchange that brings the two brokers' bytes nearest to each other. Return False if none brings them nearer."""
        giving = [place for place in largest if self.may_move(place, source, target)]
        if not giving:
            return False
        smallest = nsmallest(EXCHANGED_MAX, self.held[target], key=lambda place: (self.size(place), place))
        taking = [place for place in smallest if self.may_move(place, target, source)]
        sizes = [self.size(place) for place in taking]
        gap = self.bytes[source] - self.bytes[target]
        # The gap becomes |gap - 2 * change|: it is smaller for a change between 0 and the gap, and smallest near its half.
        best: tuple[float, TopicPartition, TopicPartition] | None = None
        for one in giving:
            near = bisect_left(sizes, self.size(one) - gap / 2)
            for other in range(max(0, near - 1), min(near + 1, len(sizes))):
                left = abs(gap - 2 * (self.size(one) - sizes[other]))
                if left < (gap if best is None else best[0]):
                    best = (left, one, taking[other])
        if best is None:
            return False
        self.move(best[1], source, target)
        self.move(best[2], target, source)
        return True

    # -- 5: leaders ----------------------------------------------------------------------------------------------------

    def even_leaders(self) -> None:
        """Hand leadership from a broker with more leaders to one with at least two fewer, if need be through brokers between
        them.
        """
        led: dict[int, set[TopicPartition]] = {node: set() for node in self.held}
        fixed: Counter[int] = Counter()
        can_move = set(self.movable)
        for place, nodes in self.replicas.items():
            if place in can_move and nodes[0] in led:
                led[nodes[0]].add(place)
            else:
                fixed[nodes[0]] += 1
        while True:
            for source in sorted(led, key=lambda node: (-len(led[node]) - fixed[node], node)):
                way = self._way_to_fewer(source, led, fixed)
                if way:
                    break
            else:
                return
            for giving, taking, place in way:
                nodes = self.replicas[place]
                at = nodes.index(taking)
                nodes[0], nodes[at] = nodes[at], nodes[0]
                led[giving].discard(place)
                led[taking].add(place)

    def _way_to_fewer(
        self, source: int, led: Mapping[int, set[TopicPartition]], fixed: Mapping[int, int]
    ) -> list[tuple[int, int, TopicPartition]]:
        """Return the shortest chain of handovers from `source` to a broker that leads at least two partitions fewer; it is
        empty if there is none.
        """
        limit = len(led[source]) + fixed[source] - 2
        came: dict[int, tuple[int, TopicPartition]] = {}
        queue = deque([source])
        while queue:
            node = queue.popleft()
            if node != source and len(led[node]) + fixed[node] <= limit:
                way: list[tuple[int, int, TopicPartition]] = []
                while node != source:
                    giving, place = came[node]
                    way.append((giving, node, place))
                    node = giving
                return way[::-1]
            for place in sorted(led[node]):
                for other in self.replicas[place][1:]:
                    if other in led and other != source and other not in came:
                        came[other] = (node, place)
                        queue.append(other)
        return []
