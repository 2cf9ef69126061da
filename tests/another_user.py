"""Another user of this machine, for tests of what the user of a service may read and write when root has installed it."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from tests.needs import skip_because
from tests.rules.sources import ROOT

#: The user without rights, which all systems have.
OTHER_USER = pwd.getpwuid(65534).pw_name


def as_other_user(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command as the other user."""
    return subprocess.run(["runuser", "-u", OTHER_USER, "--", *command], capture_output=True, text=True, timeout=60)


@cache
def python_for_all() -> str | None:
    """Return an interpreter like this one that the other user may run, None if there is none: one below root's home is for root
    only.
    """
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    script = f"import sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]!r})"
    for path in (sys.executable, f"/usr/bin/python{version}", f"/usr/local/bin/python{version}"):
        if as_other_user(path, "-c", script).returncode == 0:
            return path
    return None


def skip_without_another_user() -> None:
    """Skip the test where it cannot be root and another user."""
    is_there = os.geteuid() == 0 and shutil.which("runuser") is not None and python_for_all() is not None
    skip_because(None if is_there else "it needs root, runuser, and a Python that another user may run")


def write_program(path: Path) -> None:
    """Write a launcher of `ottla` that each user may run, with the packages of this interpreter."""
    # Only packages are passed on, not the standard library of this interpreter: the other one has its own.
    packages = ":".join([str(ROOT), *(each for each in sys.path if each.endswith("-packages"))])
    python = python_for_all() or sys.executable
    path.write_text(f'#!/bin/sh\nexec env PYTHONPATH="{packages}" {python} -P -m ottla "$@"\n')
    path.chmod(0o755)
