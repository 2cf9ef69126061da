"""The order of a HashMap of Java: expected is what Java 17 printed."""

from __future__ import annotations

import pytest

from ottla.broker.groups.modern.java_maps import in_order


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
