"""Placement of replicas: racks and brokers in turn, fenced brokers last and never as the leader, one replica for a broker."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.decisions.placement import UsableBroker, place
from ottla.protocol.errors import ErrorCode, KafkaError


def brokers(*racks: str | None, fenced: tuple[int, ...] = ()) -> list[UsableBroker]:
    return [UsableBroker(number, rack, number in fenced) for number, rack in enumerate(racks, 1)]


def test_each_partition_has_its_replicas_in_different_racks() -> None:
    racks = dict(enumerate(["a", "a", "b", "b", "c", "c"], 1))
    for replicas in place(brokers(*racks.values()), partitions=50, replication_factor=3, rng=Random(1)):
        assert {racks[broker] for broker in replicas} == {"a", "b", "c"}


@given(
    hosts=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    factor=st.integers(1, 5),
    fenced=st.sets(st.integers(2, 25)),
    seed=st.integers(0, 99),
)
def test_replicas_share_a_host_only_if_there_are_fewer_hosts_than_replicas(
    hosts: list[int], factor: int, fenced: set[int], seed: int
) -> None:
    racks = dict(enumerate((f"host-{n}" for n, count in enumerate(hosts) for _ in range(count)), 1))
    usable = brokers(*racks.values(), fenced=tuple(fenced))
    for replicas in place(usable, partitions=20, replication_factor=min(factor, len(usable)), rng=Random(seed)):
        assert len({racks[broker] for broker in replicas}) == min(len(replicas), len(hosts))


def test_leaders_and_replicas_are_spread_evenly() -> None:
    placed = list(place(brokers(None, None, None), partitions=300, replication_factor=2, rng=Random(2)))
    leaders = Counter(replicas[0] for replicas in placed)
    assert set(leaders) == {1, 2, 3} and max(leaders.values()) - min(leaders.values()) <= 45, leaders
    followers = Counter(replicas for replicas in placed)
    assert len(followers) == 6, "every pair of brokers shares some partitions"


def test_a_fenced_broker_takes_replicas_where_it_must_but_never_leads() -> None:
    placed = place(brokers(None, None, None, fenced=(2,)), partitions=20, replication_factor=3, rng=Random(3))
    assert all(replicas[0] != 2 and 2 in replicas for replicas in placed)
    placed = place(brokers(None, None, None, fenced=(2,)), partitions=20, replication_factor=2, rng=Random(3))
    assert all(2 not in replicas for replicas in placed)


@pytest.mark.parametrize(
    ("usable", "factor", "message"),
    [
        (
            brokers(None),
            2,
            "The target replication factor of 2 cannot be reached because only 1 broker(s) are registered or some brokers have"
            " all their log directories cordoned.",
        ),
        (brokers(None, fenced=(1,)), 1, "All brokers are currently fenced."),
        ([], 1, "All brokers are currently fenced."),
        (brokers(None), 0, "Invalid replication factor 0: the replication factor must be positive."),
    ],
)
def test_what_cannot_be_placed_is_refused(usable: list[UsableBroker], factor: int, message: str) -> None:
    with pytest.raises(KafkaError) as refused:
        place(usable, partitions=1, replication_factor=factor, rng=Random(1))
    assert (refused.value.code, refused.value.message) == (ErrorCode.INVALID_REPLICATION_FACTOR, message)


@given(
    racks=st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=9),
    fenced=st.sets(st.integers(1, 9)),
    factor=st.integers(1, 9),
    seed=st.integers(0, 1000),
)
def test_replicas_differ_and_the_first_is_alive(
    racks: list[str | None], fenced: set[int], factor: int, seed: int
) -> None:
    usable = brokers(*racks, fenced=tuple(fenced))
    alive = {broker.id for broker in usable if not broker.fenced}
    if not alive or factor > len(usable):
        return
    for replicas in place(usable, partitions=12, replication_factor=factor, rng=Random(seed)):
        assert len(set(replicas)) == factor
        assert replicas[0] in alive
