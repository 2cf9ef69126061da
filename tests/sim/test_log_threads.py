"""One log whose threads stop before file system calls, and its mutants: what reads a log's state beside its own thread."""

from __future__ import annotations

import pytest

from tests.effort import seeds
from tests.sim.log_threads import MUTANTS, is_noticed, play
from tests.sim.noticed import seeds_for

SEEDS = seeds(20, long=3000)


def test_what_was_appended_is_there_and_what_was_flushed_is_on_the_disk() -> None:
    for seed in range(SEEDS):
        play(seed)


@pytest.mark.parametrize("name", MUTANTS)
def test_the_mutant_is_noticed(name: str) -> None:
    assert any(is_noticed(name, seed) for seed in seeds_for("threads", name)), f"no seed noticed that {name}"
