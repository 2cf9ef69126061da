"""Version ranges."""

import pytest

from ottla.protocol.schema import NONE, Versions, parse_versions


@pytest.mark.parametrize(("text", "low", "high"), [("3+", 3, 32767), ("0-4", 0, 4), ("2", 2, 2), ("0+", 0, 32767)])
def test_ranges_are_read_and_written(text: str, low: int, high: int) -> None:
    assert parse_versions(text) == Versions(low, high)
    assert str(parse_versions(text)) == text


def test_none_is_empty() -> None:
    assert parse_versions("none") == NONE
    assert not NONE
    assert 0 not in NONE
    assert list(NONE.all()) == []
    assert str(NONE) == "none"


def test_membership() -> None:
    assert [version for version in range(6) if version in parse_versions("2-4")] == [2, 3, 4]
    assert "3" not in parse_versions("2-4")
    assert list(parse_versions("2-4").all()) == [2, 3, 4]


@pytest.mark.parametrize("text", ["", "x", "1..3"])
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_versions(text)
