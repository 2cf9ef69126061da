"""The simple assignor of share groups, on random histories of members and topics."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from ottla.broker.groups.modern.assignment import Assignment, Subscriber
from ottla.broker.groups.modern.simple import assign_simple, in_order
from tests.broker.groups.cluster import id_of

A, B = id_of("a"), id_of("b")


def holders(assigned: dict[str, Assignment]) -> Counter[tuple[bytes, int]]:
    return Counter((t, p) for topics in assigned.values() for t, partitions in topics.items() for p in partitions)


def sizes(assigned: dict[str, Assignment]) -> list[int]:
    return [sum(map(len, topics.values())) for topics in assigned.values()]


@pytest.mark.parametrize("seed", range(30))
def test_members_of_one_subscription_have_equal_shares_of_all_partitions(seed: int) -> None:
    rng = Random(seed)
    assigned: dict[str, Assignment] = {}
    for _ in range(12):
        assignable = {A: range(rng.randrange(0, 6)), B: range(rng.randrange(1, 6))}
        count = sum(map(len, assignable.values()))
        members = {
            f"m{n}": Subscriber(frozenset({A, B}), assigned.get(f"m{n}", {}))
            for n in sorted(rng.sample(range(12), rng.randrange(1, 12)))
        }
        assigned = assign_simple(members, assignable, is_one_subscription=True)
        assert holders(assigned).keys() == {(t, p) for t, partitions in assignable.items() for p in partitions}
        # The number is rounded up, and a member counts once for each partition.
        assert max(holders(assigned).values()) <= -(-len(members) // count)
        assert max(sizes(assigned)) <= -(-(-(-len(members) // count) * count) // len(members))
        again = {member_id: member._replace(current=assigned[member_id]) for member_id, member in members.items()}
        assert assign_simple(again, assignable, is_one_subscription=True) == assigned, (
            "nothing changed, so nothing moves"
        )


@pytest.mark.parametrize("seed", range(10))
def test_members_of_different_subscriptions_have_partitions_of_their_topics_only(seed: int) -> None:
    rng = Random(seed)
    assigned: dict[str, Assignment] = {}
    for _ in range(12):
        members = {
            f"m{n}": Subscriber(frozenset(rng.sample([A, B], rng.randrange(1, 3))), assigned.get(f"m{n}", {}))
            for n in range(rng.randrange(1, 8))
        }
        assignable = {A: range(3), B: range(2)}
        assigned = assign_simple(members, assignable, is_one_subscription=False)
        subscribed = {topic_id for member in members.values() for topic_id in member.topics}
        assert {t for t, _ in holders(assigned)} == subscribed
        assert all(topics.keys() <= members[member_id].topics for member_id, topics in assigned.items())


def test_a_member_that_joins_takes_no_more_than_it_has_to() -> None:
    first = assign_simple({"m1": Subscriber(frozenset({A}))}, {A: range(4)}, is_one_subscription=True)
    members = {"m1": Subscriber(frozenset({A}), first["m1"]), "m2": Subscriber(frozenset({A}))}
    both = assign_simple(members, {A: range(4)}, is_one_subscription=True)
    assert both["m1"][A] < first["m1"][A]
    assert sizes(both) == [2, 2]


def test_partitions_without_state_are_not_assigned() -> None:
    members = {"m": Subscriber(frozenset({A, B}), {B: frozenset({1})})}
    assert assign_simple(members, {A: {1}}, is_one_subscription=True) == {"m": {A: frozenset({1})}}


# ---- the order of members: expected is what Java 17 printed


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], []),
        (["a", "p"], ["p", "a"]),
        (
            ["", "b", "q", "test-member-1", "test-member-2", "z", "ä", "😀"],
            ["", "test-member-2", "q", "b", "test-member-1", "ä", "😀", "z"],
        ),
    ],
)
def test_members_are_in_the_order_of_their_hash_codes(names: list[str], expected: list[str]) -> None:
    assert in_order(names) == expected
    assert in_order(names[::-1]) == expected


def test_the_order_changes_when_the_map_grows_at_thirteen_members() -> None:
    assert in_order("abcdefghijkp") == [*"pabcdefghijk"]
    assert in_order("abcdefghijklp") == [*"abcdefghijklp"]
