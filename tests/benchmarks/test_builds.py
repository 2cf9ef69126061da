"""The table of builds has one interpreter of each kind, and leaves out those that cannot run a node."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from benchmarks import builds

ANSWERS = {
    "here": "profile 3.11.2",
    "broken": "",
    "own": "no profile 3.11.7",
    "other": "no profile 3.11.9",
    "newer": "profile 3.14.1",
}


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    steps = {"here": iter((4.0, 2.0, 3.0)), "own": iter((6.0, 6.6, 6.3)), "newer": iter((3.0, 2.7, 2.4))}

    def run(program: str, *arguments: str) -> str:
        if not ANSWERS[program]:
            raise subprocess.CalledProcessError(1, program)
        if arguments[0] == "-c":
            return ANSWERS[program] + "\n"
        if "--wire" in arguments:
            return "  10.00 us  on the wire\n"
        return f"{next(steps[program]):7.2f} us  a Produce\n 0 + 0 + 0  passes of the collector\n"

    monkeypatch.setattr(builds, "run", run)
    yield list(ANSWERS)


def test_the_table_has_each_kind_and_version_medians_of_turns_and_the_ratio_to_the_first_build(
    programs: list[str],
) -> None:
    found = builds.builds(programs)
    assert [(build.kind, build.program) for build in found] == [
        ("profile", "here"),
        ("no profile", "own"),
        ("profile", "newer"),
    ]
    assert builds.table(found, turns=3) == [
        "| us | 3.11.2, profile | 3.11.7, no profile | 3.14.1, profile |",
        "| --- | --- | --- | --- |",
        "| a Produce | 3.00 | 6.30 (2.10x) | 2.70 (0.90x) |",
        "| on the wire | 10.00 | 10.00 (1.00x) | 10.00 (1.00x) |",
    ]


def test_this_interpreter_is_the_first_candidate() -> None:
    assert builds.candidates()[0] == sys.executable
