"""Plans that even the load of brokers: the promise of each step, on small clusters and on random ones."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.client.balance import Balance, _Plan, loads, plan_balance
from ottla.client.partitions import TopicPartition

Replicas = dict[TopicPartition, list[int]]


def topic(*replicas: list[int], name: str = "t") -> Replicas:
    return {(name, index): nodes for index, nodes in enumerate(replicas)}


def plan(current: Replicas, brokers: list[int], sizes: dict[TopicPartition, int] | None = None) -> Balance:
    return plan_balance(current, sizes or {}, dict.fromkeys(brokers))


def test_what_is_even_stays_as_it_is() -> None:
    current = topic([1, 2], [2, 3], [3, 1])
    assert plan(current, [1, 2, 3], dict.fromkeys(current, 100)) == Balance(current, [])


def test_a_new_broker_gets_its_share_with_the_least_that_moves() -> None:
    current = topic(*[[1, 2] for _ in range(6)])
    after = plan(current, [1, 2, 3]).replicas
    found = loads(after, {}, [])
    assert {node: (load.leaders, load.replicas) for node, load in found.items()} == {1: (2, 4), 2: (2, 4), 3: (2, 4)}
    moved = sum(len(set(after[place]) - set(current[place])) for place in current)
    assert moved == 4


def test_leaders_are_evened_by_the_order_alone_also_through_a_third_broker() -> None:
    current = topic([1, 3], [1, 3], [3, 2], [3, 2], [1], [2])
    after = plan(current, [1, 2, 3]).replicas
    assert {place: set(nodes) for place, nodes in after.items()} == {
        place: set(nodes) for place, nodes in current.items()
    }
    assert sorted(load.leaders for load in loads(after, {}, []).values()) == [2, 2, 2]


def test_a_drained_broker_is_empty_and_the_others_are_even() -> None:
    current = topic(*[[1 + n % 3, 1 + (n + 1) % 3] for n in range(9)])
    after = plan(current, [1, 2]).replicas
    assert {node: load.replicas for node, load in loads(after, {}, []).items()} == {1: 9, 2: 9}


def test_a_partition_that_would_need_more_brokers_is_named() -> None:
    found = plan(topic([1, 2, 3]), [1, 2])
    assert found.stuck == [("t", 0)]


def test_replicas_are_in_as_many_racks_as_there_are() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "b"}
    current = topic([1, 2], [1, 2], [3, 4], [3, 4])
    after = plan_balance(current, {}, racks).replicas
    assert all({racks[node] for node in nodes} == {"a", "b"} for nodes in after.values())
    assert {load.replicas for load in loads(after, {}, []).values()} == {2}


def test_bytes_are_evened_by_an_exchange_and_not_within_the_tolerance() -> None:
    current = topic([1], [1], [2], [2])
    sizes = {("t", 0): 1000, ("t", 1): 900, ("t", 2): 100, ("t", 3): 100}
    after = plan(current, [1, 2], sizes).replicas
    found = loads(after, sizes, [])
    assert {load.replicas for load in found.values()} == {2}
    assert {load.bytes for load in found.values()} == {1000, 1100}
    nearly = {("t", 0): 1000, ("t", 1): 1000, ("t", 2): 950, ("t", 3): 900}
    assert plan(current, [1, 2], nearly).replicas == current


def test_a_plan_for_fifty_brokers_tries_a_replica_some_times_and_not_after_every_move(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    racks: dict[int, str | None] = {node: f"rack {node % 3}" for node in range(1, 51)}
    chance = Random(1)
    current = topic(*[[3 * chance.randrange(16) + rack for rack in (1, 2, 3)] for _ in range(1_000)])
    sizes = {place: int(10_000 * chance.paretovariate(1.1)) for place in current}
    tried, may_move = Counter[bool](), _Plan.may_move

    def counted(self: _Plan, place: TopicPartition, source: int, target: int) -> bool:
        tried[target in self.held] += 1
        return may_move(self, place, source, target)

    monkeypatch.setattr(_Plan, "may_move", counted)
    found = loads(plan_balance(current, sizes, racks).replicas, sizes, racks)
    for rack in (0, 1, 2):
        counts = {load.replicas for node, load in found.items() if node % 3 == rack}
        assert max(counts) - min(counts) <= 1
    assert tried.total() < 250 * 3 * len(current)


def test_partitions_that_were_not_named_stay() -> None:
    current = {**topic([1], [1], [1], [1]), ("u", 0): [1], ("u", 1): [1]}
    after = plan_balance(
        current, {}, {1: None, 2: None}, among=[place for place in current if place[0] == "t"]
    ).replicas
    assert after["u", 0] == after["u", 1] == [1]
    assert loads(after, {}, [])[2].replicas == 3


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Replicas, dict[TopicPartition, int], dict[int, str | None]]:
    brokers = draw(st.integers(1, 6))
    racks: dict[int, str | None] = {node: draw(st.sampled_from(["a", "b", "c"])) for node in range(brokers)}
    old = brokers + draw(st.integers(0, 2))  # brokers that are drained
    factor = draw(st.integers(1, brokers))
    current = {("t", index): draw(st.permutations(range(old)))[:factor] for index in range(draw(st.integers(1, 12)))}
    return current, {place: draw(st.integers(0, 1000)) for place in current}, racks


#: Only after the exchange of bytes can a broker of rack b give a replica away.
OPENED_BY_AN_EXCHANGE = (
    topic([0, 3], [0, 1], [0, 1], [0, 3], [0, 2], [3, 1]),
    {("t", index): size for index, size in enumerate([0, 1, 1, 0, 0, 0])},
    {0: "a", 1: "c", 2: "a", 3: "b", 4: "a", 5: "b"},
)


@settings(max_examples=150, deadline=None)
@given(clusters())
@example(OPENED_BY_AN_EXCHANGE)
def test_every_plan_keeps_the_partitions_valid_and_ends_more_even(
    made: tuple[Replicas, dict[TopicPartition, int], dict[int, str | None]],
) -> None:
    current, sizes, racks = made
    found = plan_balance(current, sizes, racks)
    assert found.stuck == [] and found.replicas.keys() == current.keys()
    for place, nodes in found.replicas.items():
        assert len(nodes) == len(set(nodes)) == len(current[place]) and set(nodes) <= racks.keys()
        assert len({racks[node] for node in nodes}) == min(len(nodes), len(set(racks.values())))
    if len(set(racks.values())) in (1, len(racks)) and len(racks) > 1:
        counts = [load.replicas for load in loads(found.replicas, sizes, racks).values()]
        assert max(counts) - min(counts) <= 1
    again = plan_balance(found.replicas, sizes, racks).replicas
    assert loads(again, sizes, racks) == loads(found.replicas, sizes, racks)
