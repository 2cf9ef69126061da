"""A short run of the fuzzer over all targets, for the tests: in one process, because instrumenting the product takes 11 s."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import engine
from tests.fuzz.judge import ROOT

#: The number for all targets together, by their shares.
EXECUTIONS = 1_500
#: With a fixed seed a test fails because of a change of the code, and not by chance. `make fuzz` takes a random seed.
SEED = 1
#: Instrumenting the codecs of all APIs would take longer than the run: each run starts from other versions.
SEEDS = 10


@pytest.mark.skipif(not engine.can_guide(), reason="there is no atheris for this platform or Python")
@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_nothing_that_clients_and_peers_send_or_that_may_be_on_the_disk_does_harm(tmp_path: Path) -> None:
    limits = ["--jobs", "1", "--count", str(EXECUTIONS), "--seed", str(SEED), "--seeds", str(SEEDS)]
    command = [sys.executable, "-m", "tests.fuzz", *limits, "--folder", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    print(done.stdout)
    assert done.returncode == 0, done.stdout
