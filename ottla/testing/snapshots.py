"""A snapshot of a cluster that a test has filled: each fork of it is a separate cluster with the same data (docs/SNAPSHOTS.md)."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from typing import Generic, TypeVar

from ottla.local.snapshots.fence import NotFenced
from ottla.local.snapshots.layout import PART, About
from ottla.local.snapshots.placing import place_fork
from ottla.local.snapshots.taking import cluster_at, make

T = TypeVar("T")
NAME = "snapshot"
#: A machine that is busy with tests may itself stall while the nodes are stopped.
ATTEMPTS = 5


class ClusterSnapshot(Generic[T]):
    """The data of a cluster at one moment. No node writes to it."""

    def __init__(self, directory: str, start: Callable[[str, bool], T]) -> None:
        """Take a snapshot of the cluster in `directory`, which may run.

        `start` makes a cluster of a directory, which may be temporary.

        Raises:
            Failure: the snapshot cannot be taken. The cluster goes on.
        """
        self._start = start
        self._folder = tempfile.mkdtemp(prefix="ottla-snapshot-")
        self._path = os.path.join(self._folder, NAME)
        try:
            self.about = self._make(directory)
        except BaseException:
            self.close()
            raise

    def _make(self, directory: str) -> About:
        for left in reversed(range(ATTEMPTS)):
            try:
                return make(directory, cluster_at(directory), NAME, self._path + PART, self._path, durable=False)[0]
            except NotFenced:
                if not left:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def fork(self, directory: str | None = None) -> T:
        """Return a cluster with this data, its own ports, and the snapshot's settings.

        It starts when it is entered: `with snapshot.fork() as cluster`.
        """
        place = directory or tempfile.mkdtemp(prefix="ottla-fork-")
        place_fork(self._path, place)
        return self._start(place, directory is None)

    def close(self) -> None:
        """Remove the snapshot. Forks keep the files that they share with it."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> ClusterSnapshot[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
