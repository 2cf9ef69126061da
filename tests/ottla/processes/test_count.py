"""The number of processes, as people write it."""

from __future__ import annotations

import pytest

from ottla.processes.plan import process_count


@pytest.mark.parametrize("text, count", [("1", 1), ("16", 16), ("999", 999)])
def test_a_number_of_brokers(text: str, count: int) -> None:
    assert process_count(text) == count


@pytest.mark.parametrize("text", ["0", "-1", "1000000", "two", "", "2.0", "²"])
def test_what_is_no_number_of_brokers_is_refused_with_what_is(text: str) -> None:
    with pytest.raises(ValueError, match="between 1 and 999"):
        process_count(text)
