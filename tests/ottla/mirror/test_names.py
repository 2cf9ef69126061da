"""Names of topics by the two policies, cycles, and the sharing of lanes between workers."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ottla.mirror.catalogue import own_settings
from ottla.mirror.names import IDENTITY, TOPICS_EXCLUDED, Policy, Selection, is_internal
from ottla.mirror.shares import LANES, lane_of, share
from ottla.protocol.messages.describe_configs import DescribeConfigsResourceResult

POLICY = Policy("west", "east")
SAME = Policy("west", "east", IDENTITY)


def test_names_are_those_of_mirror_maker() -> None:
    assert (POLICY.remote("t"), SAME.remote("t")) == ("west.t", "t")
    assert SAME.remote("heartbeats") == "west.heartbeats"
    assert POLICY.positions_topic == "mm2-offsets.west.internal"
    assert POLICY.checkpoints_topic == "west.checkpoints.internal"
    assert POLICY.offset_syncs_topic(in_source=True) == "mm2-offset-syncs.east.internal"
    assert POLICY.offset_syncs_topic(in_source=False) == "mm2-offset-syncs.west.internal"
    assert POLICY.is_heartbeats("north.heartbeats")
    assert not POLICY.is_heartbeats("north.t")


def test_a_name_that_holds_the_targets_alias_is_a_cycle() -> None:
    cycles = {"east.t": True, "north.east.t": True, "north.t": False, "t": False, "east": False, "t.east": False}
    assert {name: POLICY.is_cycle(name) for name in cycles} == cycles
    assert not SAME.is_cycle("east.t")


def test_internal_topics_and_excluded_ones_are_not_selected() -> None:
    chosen = Selection((r"orders\..*", "users"), TOPICS_EXCLUDED)
    names = ("orders.eu", "orders", "users", "users2", "orders.replica", "orders.internal")
    assert [name for name in names if name in chosen] == ["orders.eu", "users"]
    assert all(map(is_internal, ("__consumer_offsets", "west.checkpoints.internal", "connect-internal")))


def test_the_lane_of_a_partition_never_changes() -> None:
    assert [lane_of(("orders", index)) for index in (0, 1, 31, 32)] == [14, 15, 13, 14]


WEIGHTS = st.dictionaries(st.integers(0, LANES - 1), st.integers(1, 50))


@given(st.integers(1, 6), st.integers(1, 6), WEIGHTS)
def test_each_lane_is_with_one_worker_and_the_load_is_even(before: int, after: int, weights: dict[int, int]) -> None:
    shares = share({f"m{i}": [] for i in range(before)}, weights)
    shares = share({f"m{i}": shares.get(f"m{i}", []) for i in range(after)}, weights)
    assert Counter(lane for row in shares.values() for lane in row) == Counter(range(LANES))
    loads = [sum(weights.get(lane, 0) for lane in row) for row in shares.values()]
    assert max(loads) <= -(-sum(weights.values()) // after) + max(weights.values(), default=0)


@given(st.integers(1, 6), WEIGHTS)
def test_lanes_stay_where_they_are_while_nothing_changes(members: int, weights: dict[int, int]) -> None:
    shares = share({f"m{i}": [] for i in range(members)}, weights)
    assert share(shares, weights) == shares


def test_settings_of_one_cluster_stay_there() -> None:
    """The table of the source's topic is where the source's brokers write it."""
    remote = ("remote.storage.enable", "local.retention.ms", "remote.log.copy.disable")
    names = ("retention.ms", "min.insync.replicas", "ottla.table.format", "ottla.table.location", *remote)
    entries = [DescribeConfigsResourceResult(name=name, value="1", config_source=1) for name in names]
    assert own_settings(entries) == {"retention.ms": "1"}
