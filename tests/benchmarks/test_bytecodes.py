"""The bytecodes that a small request costs, against the table that is kept in the tree: a regression that no timing would show."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.bytecodes import differences, read_table, version

EXPECTED_VERSION, EXPECTED = read_table()


@pytest.mark.skipif(version() != EXPECTED_VERSION, reason=f"the table is of {EXPECTED_VERSION}: others count otherwise")
def test_each_step_of_a_small_request_costs_what_its_table_says() -> None:
    """The command `python -m benchmarks.bytecodes --write` renews the table; the commit says why a row has grown.

    It is a process of its own, because pytest rewrites the tree's asserts.
    """
    command = [sys.executable, "-m", "benchmarks.bytecodes", "--check"]
    checked = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_a_step_that_the_table_lacks_and_one_that_is_gone_are_differences() -> None:
    assert len(differences({})) == len(EXPECTED)
