"""Numbers, sizes and times on the pages, as people read them, also unknown ones."""

from __future__ import annotations

import pytest

from ottla.console.texts import NOT_KNOWN, NUMBERS


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("count", 1_234_567, "1,234,567"),
        ("size", 0, "0 B"),
        ("size", 999, "999 B"),
        ("size", 1000, "1.0 KB"),
        ("size", 1536, "1.5 KB"),
        ("size", 150 * 1024, "150 KB"),
        ("size", 5 * 1024**6, "5120 PB"),
        ("rate", 0, "0"),
        ("rate", 0.25, "0.2"),
        ("rate", 12_345.6, "12,346"),
        ("duration", 0.25, "250 ms"),
        ("duration", 59.9, "59 s"),
        ("duration", 90, "1 min 30 s"),
        ("duration", 3_600, "1 h 0 min"),
        ("duration", 90_000, "1 d 1 h"),
        ("moment", 0, "1970-01-01 00:00:00.000"),
        ("moment", 1_700_000_000_007, "2023-11-14 22:13:20.007"),
        ("moment", 2**63 - 1, str(2**63 - 1)),  # a producer may write any number
    ],
)
def test_a_value_is_shown_as_people_read_it(kind: str, value: float, text: str) -> None:
    assert NUMBERS[kind](value) == text


@pytest.mark.parametrize("kind", NUMBERS)
def test_what_is_not_known_is_a_dash(kind: str) -> None:
    assert NUMBERS[kind](None) == NOT_KNOWN


@pytest.mark.parametrize("kind", ["size", "duration", "moment"])
def test_a_number_below_zero_stands_for_one_that_is_not_known(kind: str) -> None:
    assert NUMBERS[kind](-1) == NOT_KNOWN
