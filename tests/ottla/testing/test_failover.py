"""The demonstration in the README, unchanged."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.ottla.conftest import ROOT


@pytest.mark.chaos
@pytest.mark.timeout(240)
def test_the_demonstration_kills_the_leader_and_loses_nothing() -> None:
    command = [sys.executable, "-m", "tools.failover", "--seconds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=230, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    killed, led = re.search(r"kill -9 \d+: node (\d)", done.stdout), re.search(r"node (\d) leads$", done.stdout, re.M)
    assert killed is not None and led is not None and killed[1] != led[1]
    lines = re.search(r"consume --follow: (\d+) of (\d+) lines, each once and in order", done.stdout)
    assert lines is not None and lines[1] == lines[2] and int(lines[1]) > 50
    counted = re.search(r"acknowledged (\d+) of (\d+), read back (\d+): 0 lost, 0 doubled, 0 out of order", done.stdout)
    assert counted is not None and int(counted[1]) == int(counted[2]) == int(counted[3]) > 500


def test_the_readme_names_it() -> None:
    assert "make failover" in (ROOT / "README.md").read_text()
    assert "-m tools.failover" in (ROOT / "Makefile").read_text()
