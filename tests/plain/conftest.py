"""The plain install: the wheel of this tree without any extra, in a separate environment, and a node that runs from it.

Its commands run in an empty folder, without this process's variables of Python, so that nothing of the tree is imported. The stock
clients are those of the environment of the tests.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.clients.conftest import SOONER, topic
from tests.ottla.test_distribution import installed

__all__ = ["topic"]

ROOT = Path(__file__).parents[2]
COMMAND_S_MAX = 60
#: Like SOONER, for members of share groups.
SHARED_SOONER = {f"group.share.{which}heartbeat.interval.ms": "250" for which in ("min.", "")}


@dataclass
class Plain:
    """An environment with the wheel, and the empty folder in which its commands run."""

    environment: Path
    folder: Path
    wheel: Path

    @property
    def remedy(self) -> str:
        """Return the command that installs an extra of this wheel into this environment, which has no pip of its own, up to the extra."""
        python = self.environment / "bin/python"
        words = f"uv pip install --python {python}" if shutil.which("uv") else f"pip --python {python} install"
        return f"{words} '{self.wheel}"

    def words(self, program: str, *arguments: str) -> list[str]:
        return [str(self.environment / "bin" / program), *arguments]

    def run(
        self, program: str, *arguments: str, stdin: str = "", cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words(program, *arguments),
            cwd=cwd or self.folder,
            env=variables(),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=COMMAND_S_MAX,
        )

    def ok(self, program: str, *arguments: str, stdin: str = "") -> str:
        """Return the output of a command that must not fail."""
        done = self.run(program, *arguments, stdin=stdin)
        assert done.returncode == 0, f"{program} {' '.join(arguments)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout


def variables() -> dict[str, str]:
    """Return the environment of a user who has set no variables for Python, pytest or Ottla."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST", "OTTLA"))}
    return kept | {"NO_COLOR": "1"}


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Plain:
    """pytest is there for the plugin, and brings nothing that an extra brings."""
    folder = tmp_path_factory.mktemp("plain")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = folder.glob("*.whl")
    empty = folder / "empty"
    empty.mkdir()
    return Plain(installed(wheel, folder).parent.parent, empty, wheel)


@dataclass
class PlainNode:
    bootstrap: str
    directory: Path


@pytest.fixture(scope="session")
def node(plain: Plain) -> Iterator[PlainNode]:
    """A node as `ottla dev` of the plain install starts it."""
    directory = plain.folder / "data"
    words = plain.words("ottla", "dev", "--nodes", "1", "--base-port", "0", "--json", "--dir", str(directory))
    for name, value in {**SOONER, **SHARED_SOONER}.items():
        words += ["--override", f"{name}={value}"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=plain.folder, env=variables()) as process:
        assert process.stdout is not None
        try:
            yield PlainNode(json.loads(process.stdout.readline())["bootstrap"], directory)
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(COMMAND_S_MAX) == 0, "the node did not stop cleanly"


@pytest.fixture(scope="session")
def bootstrap(node: PlainNode) -> str:
    """The address of the node, under the name that the tests of clients use for it."""
    return node.bootstrap
