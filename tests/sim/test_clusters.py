"""Seeded simulations of whole clusters (docs/dev/SIMULATOR.md); `make chaos` runs 100 of them, `make sim` as many as one likes.

Each simulation runs in a process of its own, because a seed replays only with the hash seed that the runner sets.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.effort import seeds
from tests.sim.noticed import seeds_for

SEEDS, SEEDS_PER_TEST = seeds(2, long=100), 5
#: Virtual seconds: half of the time that `make sim` gives a seed, to stay within the time of `make test`.
SECONDS = 30
ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.sim", "--jobs", "1", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_nothing_promised_is_broken_by_these_seeds(first: int) -> None:
    done = run("--seeds", f"{first}-{min(first + SEEDS_PER_TEST, SEEDS) - 1}", "--seconds", str(SECONDS))
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "mutant", ["truncate-to-watermark", pytest.param("dedupe-window-of-zero", marks=pytest.mark.chaos)]
)
def test_a_known_mistake_is_noticed(mutant: str) -> None:
    known = next(seeds_for("replication", mutant))
    done = run("--mutant", mutant, "--seeds", f"{known}-{known}")
    if done.returncode:
        done = run("--mutant", mutant, "--seeds", "0-99")
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
