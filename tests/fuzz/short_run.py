"""A short run of the fuzzer, as the tests make it: half a minute for each half of the targets."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import engine
from tests.fuzz.judge import ROOT

SECONDS = 30
#: The same inputs each time, as far as the machine gets: a test fails by a change of the code, not by chance. `make fuzz` draws.
SEED = 1
#: Instrumenting the codecs of all APIs would take longer than the run: each time it starts from other versions.
SEEDS = 15

needs_atheris = pytest.mark.skipif(not engine.can_guide(), reason="there is no atheris for this platform or Python")


def find_nothing_new(targets: list[str], folder: Path) -> None:
    """In a process of its own: what is fuzzed is instrumented as it is imported."""
    chosen = [argument for name in targets for argument in ("--target", name)]
    limits = ["--jobs", "1", "--seconds", str(SECONDS), "--seed", str(SEED), "--seeds", str(SEEDS)]
    command = [sys.executable, "-m", "tests.fuzz", *limits]
    done = subprocess.run([*command, "--folder", str(folder), *chosen], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    print(done.stdout)
    assert done.returncode == 0, done.stdout
