"""The project's wheel, built and unpacked, and an interpreter that has the pipeline's libraries but not the source tree."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

from tests.pipeline.conftest import ROOT

#: `-S` leaves out the .pth files, and with them an editable install of this tree; `-P` leaves out the current folder.
INTERPRETER = """#!/bin/sh
PYTHONPATH="$PYTHONPATH:{libraries}" exec {python} -S -P "$@"
"""


def wheel(folder: Path) -> Path:
    """Build the wheel of this tree with the installed build tool."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return next(folder.glob("ottla-*.whl"))


def installed(folder: Path) -> tuple[str, dict[str, str]]:
    """An interpreter without this tree, and the environment variables with which it finds the pipeline of the built wheel.

    The interpreter alone is what executors run: they find the pipeline only in what the driver sends.
    """
    folder.mkdir(parents=True)
    target = folder / "site"
    with zipfile.ZipFile(wheel(folder)) as archive:
        archive.extractall(target)
    python = bare_python(folder)
    environment = {
        "PYTHONPATH": str(target),
        "PYSPARK_PYTHON": python,
        "JAVA_TOOL_OPTIONS": os.environ.get("JAVA_TOOL_OPTIONS", ""),
    }
    return python, environment


def bare_python(folder: Path) -> str:
    """An interpreter with the libraries that are installed here, and without this tree."""
    python = folder / "python"
    python.write_text(INTERPRETER.format(python=sys.executable, libraries=sysconfig.get_path("purelib")))
    python.chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": ""}
    command = [str(python), "-c", "import ottla"]
    alone = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    assert "No module named 'ottla'" in alone.stderr, "executors would not need what the driver sends"
    return str(python)
