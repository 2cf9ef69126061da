"""`make compat ARGS=workflows`: the commands of `.github/workflows/`, run here in a copy of the tree as a forge runs them.

A forge checks the commit out and runs the steps of a job in `bash -e`, one after the other. Here the jobs of a workflow share
one copy of the tree, so that a job finds what another has uploaded. They use the packages of this environment; only `make
lowest` has its own, as always.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.compat.librdkafka import Outcome
from tools import dist

WORKFLOWS = sorted((dist.ROOT / ".github/workflows").glob("*.yml"))
#: The beginnings of commands that cannot run here.
LEFT_OUT = {
    "make test": "it is what a developer runs, and takes minutes",
    "docker": "no container engine",
    "gh": "no forge",
}
SECONDS_MAX = 1_800


def missing() -> str | None:
    """Return why the commands cannot be run here."""
    if not (Path(sys.prefix) / "dev").exists():
        return "the environment was not made by make"
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=dist.ROOT, capture_output=True)
    return "this is no clone" if done.returncode else None


def commands(workflow: Path) -> Iterator[tuple[str, str]]:
    """Yield the commands of a workflow in its order, each with the name of its job and its number."""
    jobs: dict[str, Any] = yaml.safe_load(workflow.read_text())["jobs"]
    for job, body in jobs.items():
        steps = [step["run"] for step in body.get("steps", ()) if "run" in step]
        for number, command in enumerate(steps, 1):
            yield f"{workflow.stem}-{job}-{number}", command


def check_out(folder: Path) -> None:
    """Make a copy of the commit, and give the release of its version a date, because the workflow of a tag wants one."""
    subprocess.run(["git", "clone", "-q", "--shared", str(dist.ROOT), str(folder)], check=True)
    os.utime(folder / "pyproject.toml", (0, 0))  # so that make does not install this copy into the environment
    changelog = folder / "CHANGELOG.md"
    changelog.write_text(re.sub("^(## .* - )unreleased$", r"\g<1>2026-01-31", changelog.read_text(), flags=re.M))


def environment(folder: Path) -> dict[str, str]:
    """Return the variables of a step. make uses this environment as it is, and an empty one for the lowest versions."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MAKEFLAGS", "MAKELEVEL")}
    flags = f" -- VENV={sys.prefix} LOWEST={folder / 'lowest'}"
    return kept | {"CI": "true", "GITHUB_REF_NAME": f"v{dist.version()}", "MAKEFLAGS": flags}


def outcomes(names: list[str], logs: Path) -> Iterator[Outcome]:
    """Run each command, or the commands of the named workflows and jobs."""
    for workflow in WORKFLOWS:
        folder = logs / f"workflow-{workflow.stem}"
        for name, command in commands(workflow):
            if names and not any(name.startswith(wanted) for wanted in names):
                continue
            if reason := next((why for start, why in LEFT_OUT.items() if re.match(rf"{start}\b(?!-)", command)), None):
                print(f"{name} is left out: {reason}: {command.splitlines()[0]}", flush=True)
                continue
            if not folder.exists():
                check_out(folder)
            yield _run(name, command, folder)


def _run(name: str, command: str, folder: Path) -> Outcome:
    begin = time.monotonic()
    log = folder.parent / f"{name}.log"
    with log.open("w") as out:
        done = subprocess.run(
            ["bash", "-e", "-c", command],
            cwd=folder,
            env=environment(folder),
            stdout=out,
            stderr=out,
            timeout=SECONDS_MAX,
        )
    why = f"{command.splitlines()[0]} ended with {done.returncode}: {log.read_text()[-300:]}" if done.returncode else ""
    return Outcome(name, "FAIL" if why else "PASS", time.monotonic() - begin, why)
