"""The workflows of a forge run commands of this tree, and those exist. actionlint has checked their form; it is not here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent.parent
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def load(path: Path) -> dict[Any, Any]:
    found = yaml.safe_load(path.read_text())
    assert isinstance(found, dict)
    return found


def commands(path: Path) -> list[str]:
    jobs = load(path)["jobs"].values()
    return [step["run"] for job in jobs for step in job.get("steps", []) if "run" in step]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_targets_and_scripts_that_it_runs_exist_and_it_may_do_little(path: Path) -> None:
    workflow = load(path)
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert "timeout-minutes" in job or "uses" in job
    makefile = (ROOT / "Makefile").read_text()
    for command in commands(path):
        for target in re.findall(r"\bmake ([a-z-]+)", command):
            assert f"\n{target}:" in makefile, command
        for script in re.findall(r"\btools/\S+\.sh", command):
            assert (ROOT / script).exists(), command


def test_every_change_runs_make_test_and_nothing_less() -> None:
    assert "make test" in commands(ROOT / ".github/workflows/test.yml")
    on = load(ROOT / ".github/workflows/test.yml")[True]  # YAML reads `on` as true
    assert "pull_request" in on and on["push"]["branches"] == ["main"]


def test_only_a_tag_publishes_and_only_what_was_tested_and_built_twice() -> None:
    workflow = load(ROOT / ".github/workflows/release.yml")
    assert workflow[True] == {"push": {"tags": ["v*"]}}
    for name in ("publish", "image"):
        assert set(workflow["jobs"][name]["needs"]) == {"install", "build"}
        assert workflow["jobs"][name]["environment"] == "release"
    said = commands(ROOT / ".github/workflows/release.yml")
    assert "make test" in said and any("make dist-twice" in command and "--tag" in command for command in said)


def test_the_matrix_of_installs_has_each_python_of_the_table() -> None:
    from tools.platforms import PYTHONS

    matrix = load(ROOT / ".github/workflows/install.yml")["jobs"]["native"]["strategy"]["matrix"]
    assert tuple(matrix["python"]) == PYTHONS


def test_the_table_of_platforms_was_made_with_the_packages_of_this_tree() -> None:
    from tools import platforms

    before, begin, rest = platforms.PAGE.read_text().partition(platforms.BEGIN)
    table, end, _ = rest.partition(platforms.END)
    assert before and begin and end, "tools/platforms.py writes the table between its marks"
    assert f"\n{platforms.checked()}\n" in table, "make it again: python -m tools.platforms"
    rows = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("| ")]
    assert rows[2:] == [platform.name for platform in platforms.PLATFORMS]
