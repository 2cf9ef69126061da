"""Numbers from outside are ASCII digits within the bounds of the protocol."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ottla.client.errors import ClusterError
from ottla.client.values import INT64_MAX, number_in, time_ms
from ottla.node.default_node import is_of_another


@pytest.mark.parametrize(
    "text", ["", "-", "x", "1.5", "1e3", "+1", " 1", "\u0661", "9" * 5_000, str(INT64_MAX + 1), "-1"]
)
def test_what_is_no_number_within_the_bounds_is_none(text: str) -> None:
    assert number_in(text, 0, INT64_MAX) is None


def test_the_bounds_are_numbers() -> None:
    assert number_in("0", 0, INT64_MAX) == 0 and number_in(str(INT64_MAX), 0, INT64_MAX) == INT64_MAX
    assert number_in("-1", -1, 9) == -1


def test_a_time_of_5_000_digits_is_refused() -> None:
    with pytest.raises(ClusterError, match="no offset and no time"):
        time_ms("--from", "@" + "9" * 5_000)


def test_a_directory_that_another_one_made_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, link = tmp_path / "made", tmp_path / "link"
    made.mkdir()
    link.symlink_to(made)
    assert not is_of_another(str(made)) and not is_of_another(str(tmp_path / "none"))
    assert is_of_another(str(link)), "it leads to wherever its owner wants"
    monkeypatch.setattr(os, "geteuid", lambda: made.stat().st_uid + 1)
    assert is_of_another(str(made))
