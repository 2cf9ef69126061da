"""One log whose threads stop before file system calls, and its mutants: code that reads a log's state on another thread."""

from __future__ import annotations

import pytest

from tests.effort import seeds
from tests.histories import assert_noticed, play
from tests.sim.log_threads import MUTANTS, is_noticed, run_seed


def test_what_was_appended_is_there_and_what_was_flushed_is_on_the_disk() -> None:
    play(run_seed, range(seeds(20, long=3000)))


@pytest.mark.parametrize("name", MUTANTS)
def test_the_mutant_is_noticed(name: str) -> None:
    assert_noticed("threads", name, is_noticed)
