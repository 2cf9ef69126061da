"""Topologies of Kafka Streams applications, as members send them."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.protocol.messages.shared_structs import CopartitionGroup, KeyValue, Subtopology, TopicInfo
from ottla.protocol.messages.streams_group_heartbeat import Topology


def stateless(*sources: str, epoch: int = 0) -> Topology:
    """One subtopology, without a store."""
    return Topology(epoch, [Subtopology("0", list(sources))])


def stateful(*sources: str, epoch: int = 0, name: str = "store") -> Topology:
    """One subtopology with a store."""
    return Topology(epoch, [Subtopology("0", list(sources), state_changelog_topics=[TopicInfo(f"{name}-changelog")])])


def word_count(source: str, name: str = "app", epoch: int = 0) -> Topology:
    """Return a topology that repartitions words and counts them in a store."""
    compact = [KeyValue("cleanup.policy", "compact")]
    return Topology(
        epoch,
        [
            Subtopology("0", [source], repartition_sink_topics=[f"{name}-repartition"]),
            Subtopology(
                "1",
                state_changelog_topics=[TopicInfo(f"{name}-changelog", topic_configs=compact)],
                repartition_source_topics=[TopicInfo(f"{name}-repartition")],
            ),
        ],
    )


def joined(sources: Iterable[str], epoch: int = 0) -> Topology:
    """Return one subtopology that joins its source topics, which must have equal numbers of partitions."""
    names = list(sources)
    return Topology(epoch, [Subtopology("0", names, copartition_groups=[CopartitionGroup([*range(len(names))])])])


def chain(length: int, source: str, *, backwards: bool = False) -> Topology:
    """Return a chain of subtopologies: each one writes the repartition topic that the next one reads."""
    subtopologies = [
        Subtopology(
            f"{index:06}",
            [source] if index == 0 else [],
            repartition_source_topics=[TopicInfo(f"r{index}")] if index else [],
            repartition_sink_topics=[f"r{index + 1}"] if index < length - 1 else [],
        )
        for index in range(length)
    ]
    return Topology(0, subtopologies[::-1] if backwards else subtopologies)
