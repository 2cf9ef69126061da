"""The map of the metadata images is a dict for its readers, and its older versions do not change."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.metadata.shared_map import GROWTH, SHARD_ENTRIES_MAX, Map

KEYS = st.integers(0, 40)
STEPS = st.lists(st.lists(st.tuples(KEYS, st.one_of(st.none(), st.integers())), max_size=30), max_size=8)


@given(STEPS)
def test_each_version_is_the_dict_it_was_made_of_whatever_comes_after(
    steps: list[list[tuple[int, int | None]]],
) -> None:
    versions: list[tuple[Map[int, int], dict[int, int]]] = [(Map(), {})]
    for step in steps:
        newest, expected = versions[-1]
        changes, after = newest.mutate(), dict(expected)
        for key, value in step:
            if value is None:
                assert changes.pop(key, None) == after.pop(key, None)
            else:
                changes[key] = after[key] = value
        versions.append((changes.finish(), after))
    for found, expected in versions:
        assert found == expected == dict(found.items())
        assert (len(found), sorted(found), sorted(found.values())) == (
            len(expected),
            sorted(expected),
            sorted(expected.values()),
        )
        assert [found.get(key) for key in range(41)] == [expected.get(key) for key in range(41)]


def test_it_grows_and_shrinks_and_is_equal_to_one_that_was_laid_out_otherwise() -> None:
    many = {number: str(number) for number in range(SHARD_ENTRIES_MAX * GROWTH * 2)}
    grown: Map[int, str] = Map().update(many)
    assert grown == Map(many) and len(grown._shards) > GROWTH
    changes = grown.mutate()
    for number in range(3, len(many)):
        del changes[number]
    few = changes.finish()
    assert few == Map({number: str(number) for number in range(3)}) and len(few._shards) == 1
    assert grown == Map(many), "the larger one is as it was"


def test_a_map_does_not_share_the_dict_that_it_was_made_of() -> None:
    given_dict = {1: "a"}
    made = Map(given_dict)
    given_dict[2] = "b"
    assert dict(made) == {1: "a"}


def test_nothing_changed_is_the_same_map_and_what_is_equal_is_shared() -> None:
    before = Map(dict.fromkeys(range(10_000)))
    assert before.mutate().finish() is before
    after = before.update({1: None})
    shared = sum(one is other for one, other in zip(before._shards, after._shards, strict=True))
    assert shared == len(before._shards) - 1
