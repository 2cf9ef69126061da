"""The programs that some tests need, and that not every machine has: without them these tests are skipped, with the reason."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tools import apache_kafka

needs_apache_kafka = pytest.mark.skipif(
    apache_kafka.missing() is not None, reason=f"needs Apache Kafka's own programs: {apache_kafka.missing()}"
)
NO_ROOT = "mounting a file system needs root" if os.geteuid() != 0 else None
needs_root = pytest.mark.skipif(NO_ROOT is not None, reason=str(NO_ROOT))


def needs_packages(*names: str) -> None:
    """Skip the whole file. This must be called before the imports that need the programs."""
    for name in names:
        pytest.importorskip(
            name, reason=f"the package {name} is not installed: docs/INSTALL.md has the extra that brings it"
        )


def skip_because(problem: str | None) -> None:
    """Skip the test if there is a problem."""
    if problem is not None:
        pytest.skip(problem)


@contextmanager
def small_disk(directory: Path, size: str) -> Iterator[Path]:
    """Yield a file system in memory, of this size."""
    skip_because(NO_ROOT)
    where = directory / "disk"
    where.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(where)], capture_output=True, text=True
    )
    skip_because(f"cannot mount a tmpfs here: {mounted.stderr.strip()}" if mounted.returncode else None)
    try:
        yield where
    finally:
        subprocess.run(["umount", "-l", str(where)], check=True)
