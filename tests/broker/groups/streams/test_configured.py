"""Topologies are compared with the topics that exist: numbers of partitions, missing topics, and contradictions."""

from __future__ import annotations

import pytest

from ottla.broker.groups.streams.topology import (
    NAMED_TOPICS_MAX,
    ConfiguredTopology,
    StatusCode,
    Topology,
    configured,
    recorded,
)
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages import streams_group_heartbeat as messages
from ottla.protocol.messages.shared_structs import CopartitionGroup, KeyValue, Subtopology, TopicInfo
from tests.broker.groups.cluster import topics_image
from tests.broker.groups.streams.topologies import chain, joined, stateful, stateless, word_count

#: The number of names in a topology of these tests.
MANY = 100_000


def against(topology: messages.Topology, **topics: int) -> ConfiguredTopology:
    return configured(Topology(recorded(topology)), topics_image(topics))


def missing(topology: messages.Topology, **topics: int) -> dict[str, int]:
    return {topic.name: topic.num_partitions for topic in against(topology, **topics).missing.values()}


def status(topology: messages.Topology, **topics: int) -> tuple[int, str]:
    found = against(topology, **topics).status
    assert found is not None
    return found.status_code, found.status_detail


def test_repartition_and_changelog_topics_are_as_wide_as_their_source() -> None:
    topology = word_count("t")
    assert missing(topology, t=5) == {"app-repartition": 5, "app-changelog": 5}
    ready = against(topology, t=5, **{"app-repartition": 5, "app-changelog": 5})
    assert ready.is_ready
    assert ready.subtopologies is not None
    assert {name: (each.tasks, each.is_stateful) for name, each in ready.subtopologies.items()} == {
        "0": (5, False),
        "1": (5, True),
    }


def test_settings_of_internal_topics_come_from_the_application() -> None:
    info = TopicInfo("c", replication_factor=2, topic_configs=[KeyValue("cleanup.policy", "compact")])
    found = against(messages.Topology(0, [Subtopology("0", ["t"], state_changelog_topics=[info])]), t=1).missing["c"]
    assert (found.replication_factor, [(c.name, c.value) for c in found.configs]) == (
        2,
        [("cleanup.policy", "compact")],
    )
    assert against(stateful("t"), t=1).missing["store-changelog"].replication_factor == -1


def test_a_chain_of_repartition_topics_is_as_wide_as_its_first_source_in_any_order() -> None:
    for backwards in (False, True):
        assert set(missing(chain(5, "t", backwards=backwards), t=7).values()) == {7}


def test_topologies_of_many_names_take_time_in_proportion() -> None:
    """An algorithm that goes over all subtopologies in each round would take hours."""
    assert len(missing(chain(MANY // 5, "t", backwards=True), t=1)) == MANY // 5 - 1
    sources = [f"s{index}" for index in range(MANY)]
    code, text = status(joined(sources))
    assert (code, text.endswith(f"and {MANY - NAMED_TOPICS_MAX} additional topics are missing.")) == (1, True)
    repeated = Subtopology("0", ["t"], repartition_sink_topics=["r"] * MANY, repartition_source_topics=[TopicInfo("r")])
    assert missing(messages.Topology(0, [repeated]), t=2) == {"r": 2}


def test_missing_sources_are_named_first() -> None:
    assert status(stateless("t", "b", "a", "d", "c"), t=1) == (
        StatusCode.MISSING_SOURCE_TOPICS,
        "Source topics a, b, c and 1 additional topics are missing.",
    )


def test_topics_that_are_joined_need_equal_numbers_of_partitions() -> None:
    assert against(joined(["t", "u"]), t=2, u=2).is_ready
    assert status(joined(["t", "u"]), t=2, u=3) == (
        StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
        "Following topics do not have the same number of partitions: [{t=2, u=3}]",
    )


def copartitioned(*repartition: TopicInfo, sources: int = 1) -> messages.Topology:
    """Return a topology with repartition topics, written from `wide` and `t`, that are joined with the source topic t."""
    group = CopartitionGroup([*range(sources)], [], [*range(len(repartition))])
    writers = Subtopology("0", ["wide", "t"], repartition_sink_topics=[topic.name for topic in repartition])
    reader = Subtopology("1", ["t"][:sources], repartition_source_topics=[*repartition], copartition_groups=[group])
    return messages.Topology(0, [writers, reader])


def test_a_repartition_topic_follows_the_source_that_it_is_joined_with() -> None:
    assert missing(copartitioned(TopicInfo("r")), t=2, wide=9) == {"r": 2}
    assert missing(copartitioned(TopicInfo("r", 2)), t=2, wide=9) == {"r": 2}
    assert status(copartitioned(TopicInfo("r", 4)), t=2, wide=9) == (
        StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
        "Number of partitions [4] of repartition topic [r] doesn't match number of partitions [2] of the source topic.",
    )


def test_repartition_topics_that_are_joined_follow_the_number_that_the_application_gave() -> None:
    both = copartitioned(TopicInfo("r"), TopicInfo("s"), sources=0)
    assert missing(both, t=2, wide=9) == {"r": 9, "s": 9}
    fixed = copartitioned(TopicInfo("r", 4), TopicInfo("s"), sources=0)
    assert missing(fixed, t=2, wide=9) == {"r": 4, "s": 4}
    assert status(copartitioned(TopicInfo("r", 4), TopicInfo("s", 3), sources=0), t=2, wide=9) == (
        StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
        "Following topics do not have the same number of partitions: [{r=4, s=3}]",
    )


def test_an_internal_topic_that_exists_has_to_fit() -> None:
    assert status(stateful("t"), t=4, **{"store-changelog": 3}) == (
        StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
        "Existing topic store-changelog has different number of partitions: expected 4, found 3",
    )


BAD = {
    "no inputs": (messages.Topology(0, [Subtopology("0")]), ErrorCode.STREAMS_INVALID_TOPOLOGY),
    "never written": (
        messages.Topology(0, [Subtopology("0", ["t"], repartition_source_topics=[TopicInfo("r")])]),
        ErrorCode.STREAMS_INVALID_TOPOLOGY,
    ),
    "a loop": (
        messages.Topology(
            0,
            [
                Subtopology("0", repartition_source_topics=[TopicInfo("r")], repartition_sink_topics=["s"]),
                Subtopology("1", repartition_source_topics=[TopicInfo("s")], repartition_sink_topics=["r"]),
            ],
        ),
        ErrorCode.STREAMS_INVALID_TOPOLOGY,
    ),
    "a negative number": (
        messages.Topology(0, [Subtopology("0", ["t"], repartition_source_topics=[TopicInfo("r", -1)])]),
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ),
    "the same topic twice": (
        messages.Topology(0, [Subtopology("0", ["t"], state_changelog_topics=[TopicInfo("c"), TopicInfo("c")])]),
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ),
    "the same setting twice": (
        messages.Topology(
            0,
            [Subtopology("0", ["t"], [], [TopicInfo("c", topic_configs=[KeyValue("k", "1"), KeyValue("k", "2")])])],
        ),
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ),
    "an index below all": (
        messages.Topology(0, [Subtopology("0", ["t"], copartition_groups=[CopartitionGroup([-1])])]),
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ),
    "an index above all": (
        messages.Topology(0, [Subtopology("0", ["t"], copartition_groups=[CopartitionGroup([], [], [1])])]),
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ),
    "a subtopology twice": (
        messages.Topology(0, [Subtopology("0", ["t"]), Subtopology("0", ["t"])]),
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ),
    "an epoch below 0": (stateless("t", epoch=-1), ErrorCode.UNKNOWN_SERVER_ERROR),
}


@pytest.mark.parametrize("name", BAD)
def test_a_topology_that_cannot_be_has_kafkas_error(name: str) -> None:
    topology, code = BAD[name]
    with pytest.raises(KafkaError) as raised:
        against(topology, t=3)
    assert raised.value.code == code
