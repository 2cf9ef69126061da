"""How many partitions the internal topics of a topology have. Pure functions of the topology and of the topics that exist.

    repartition topic with a number of its own    that number
    any other repartition topic                   the most partitions that a known input of its writer has
    topics of a copartition group                 all the same number: that of its source topics, or of its repartition topics
    changelog topic                               the most partitions that an input of its subtopology has

A topic that exists keeps the number of partitions that it has, whatever is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush

from ottla.broker.groups.state.topology import Topology, copartition_groups, inputs
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.shared_structs import Subtopology


class IncorrectlyPartitioned(Exception):
    """Topics that exist, or numbers in the topology, contradict each other: a status of the response, not an error."""


class PartitionCounts:
    """Number of partitions of each topic. `existing(name)` is that of a topic that exists, or None. KafkaError for a topology that is none."""

    def __init__(self, topology: Topology, existing: Callable[[str], int | None]) -> None:
        self._existing = existing
        self._subtopologies = topology.value.subtopologies
        groups = [group for each in self._subtopologies for group in _copartition_groups(each)]
        #: What was decided, also for topics that exist.
        self.decided = self._of_repartition_topics()
        self._enforce_copartitioning(groups)
        self.decided |= self._of_changelog_topics()

    def of(self, name: str) -> int:
        count = self._known(name, self.decided)
        assert count is not None, name
        return count

    def of_tasks(self, subtopology: Subtopology) -> int:
        return max(self.of(name) for name in inputs(subtopology))

    def _known(self, name: str, decided: dict[str, int]) -> int | None:
        existing = self._existing(name)
        return decided.get(name) if existing is None else existing

    def _of_repartition_topics(self) -> dict[str, int]:
        """Each writer decides as soon as one of its inputs is known, in the order of the topology, round after round.

        Kafka looks at all subtopologies in each round. Here a round has those with a new input only: 100,000 subtopologies
        in a row would take as many rounds.
        """
        counts = {
            topic.name: topic.partitions
            for subtopology in self._subtopologies
            for topic in subtopology.repartition_source_topics
            if topic.partitions
        }
        readers: dict[str, list[int]] = {}
        for index, subtopology in enumerate(self._subtopologies):
            for topic in subtopology.repartition_source_topics:
                readers.setdefault(topic.name, []).append(index)
        queue = [(0, index) for index in range(len(self._subtopologies))]
        heapify(queue)
        decided: set[int] = set()
        while queue:
            turn, index = heappop(queue)
            subtopology = self._subtopologies[index]
            count = None if index in decided else self._widest_known_input(subtopology, counts)
            if count is None:
                continue
            decided.add(index)
            for sink in subtopology.repartition_sink_topics:
                if sink not in counts:
                    counts[sink] = count
                    for reader in readers.get(sink, ()):
                        heappush(queue, (turn if reader > index else turn + 1, reader))
        self._check_all_decided(counts, readers)
        return counts

    def _widest_known_input(self, subtopology: Subtopology, counts: dict[str, int]) -> int | None:
        known = [counts[t.name] for t in subtopology.repartition_source_topics if t.name in counts]
        known += [count for name in subtopology.source_topics if (count := self._existing(name)) is not None]
        return max(known, default=None)

    def _check_all_decided(self, counts: dict[str, int], repartition_topics: Iterable[str]) -> None:
        if any(name not in counts for each in self._subtopologies for name in each.repartition_sink_topics):
            raise _invalid(
                "Failed to compute number of partitions for all repartition topics. There may be loops in the topology"
                " that cannot be resolved."
            )
        if any(name not in counts for name in repartition_topics):
            raise _invalid(
                "Failed to compute number of partitions for all repartition topics, because a repartition source topic"
                " is never used as a sink topic."
            )

    # ---- copartitioning

    def _enforce_copartitioning(self, groups: Iterable[set[str]]) -> None:
        infos = [topic for each in self._subtopologies for topic in each.repartition_source_topics]
        topics = {topic.name for topic in infos}
        fixed = {topic.name for topic in infos if topic.partitions}
        counts_of_fixed = {self.of(name) for name in fixed}
        for group in groups:
            if not group:
                continue
            repartition = {name: self.of(name) for name in group if name in topics}
            others = {name: self.of(name) for name in group if name not in topics}
            if others:
                count = _same(others, set(others.values()))
            elif fixed:
                # All fixed numbers of the topology are compared, not only those of the group, as in Kafka 4.3.1.
                count = _same(repartition, counts_of_fixed)
            else:
                count = max(repartition.values())
            self._apply(count, repartition, fixed)

    def _apply(self, count: int, repartition: dict[str, int], fixed: set[str]) -> None:
        for name, decided in repartition.items():
            if name in fixed and decided != count:
                raise IncorrectlyPartitioned(
                    f"Number of partitions [{decided}] of repartition topic [{name}] doesn't match number of partitions"
                    f" [{count}] of the source topic."
                )
            self.decided[name] = count

    # ---- changelog topics

    def _of_changelog_topics(self) -> dict[str, int]:
        counts = {}
        for subtopology in self._subtopologies:
            if not any(True for _ in inputs(subtopology)):
                raise _invalid(f"No source topics found for subtopology {subtopology.subtopology_id}")
            tasks = self.of_tasks(subtopology) if subtopology.state_changelog_topics else 0
            for topic in subtopology.state_changelog_topics:
                counts[topic.name] = tasks
        return counts


def _copartition_groups(subtopology: Subtopology) -> list[set[str]]:
    try:
        return copartition_groups(subtopology)
    except IndexError as error:
        # Kafka fails with an unexpected exception of its own (4.3.1).
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR) from error


def _same(topics: dict[str, int], counts: set[int]) -> int:
    if len(counts) > 1:
        listed = ", ".join(f"{name}={topics[name]}" for name in sorted(topics))
        raise IncorrectlyPartitioned(f"Following topics do not have the same number of partitions: [{{{listed}}}]")
    (count,) = counts
    return count


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
