"""A snapshot of a cluster that has been filled: each fork of it is a cluster of its own, on a copy of the data."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
FICLONE = 0x40049409
NOT_COPIED = ("server.log", ".lock", "faults")


class Snapshot(Generic[T]):
    """The files of a cluster that was stopped in order, which no node writes to."""

    def __init__(self, directory: str, make: Callable[[str, bool], T]) -> None:
        """Copies the nodes' directories below `directory`; `make` makes a cluster of a directory, which may be a temporary one."""
        self._make = make
        self._folder = tempfile.mkdtemp(prefix="ottla-snapshot-")
        _copy(directory, self._folder)

    def fork(self, directory: str | None = None) -> T:
        """A cluster with this data, its own ports, and the snapshot's settings; it runs once it is entered: `with snapshot.fork() as cluster`."""
        place = directory or tempfile.mkdtemp(prefix="ottla-fork-")
        _copy(self._folder, place)
        return self._make(place, directory is None)

    def close(self) -> None:
        """Remove the files. Forks have copies of their own."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Snapshot[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _copy(source: str, target: str) -> None:
    shutil.copytree(
        source, target, copy_function=_clone, ignore=shutil.ignore_patterns(*NOT_COPIED), dirs_exist_ok=True
    )


def _clone(source: str, target: str) -> str:
    """Share the blocks where the file system can (btrfs, XFS), and copy them elsewhere."""
    if sys.platform == "linux":
        import fcntl

        try:
            with open(source, "rb") as old, open(target, "wb") as new:
                fcntl.ioctl(new, FICLONE, old.fileno())
            os.chmod(target, os.stat(source).st_mode)
            return target
        except OSError:
            pass  # this file system shares none
    return shutil.copy2(source, target)
