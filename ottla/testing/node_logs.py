"""The nodes' logs in the report of a failed test, and what remains of a cluster when its fixture ends."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ottla.testing.clients import Clients

LOG = "server.log"
#: This many lines of each node are shown. The whole log is kept beside the data of the session.
LINES_MAX = 60


class ShownLogs:
    """The clusters that fixtures have started in this process, and the lengths of their logs when the test began."""

    def __init__(self) -> None:
        self._clusters: dict[str, Clients] = {}
        self._began: dict[str, int] = {}
        #: Fixtures whose cluster a failed test has used: their logs are kept.
        self.failed: set[str] = set()

    def add(self, fixture: str, cluster: Clients) -> None:
        self._clusters[fixture] = cluster

    def remove(self, fixture: str) -> bool:
        """Return whether a test with this fixture has failed."""
        del self._clusters[fixture]
        failed = fixture in self.failed
        self.failed.discard(fixture)
        return failed

    def begin_test(self) -> None:
        self._began = {path: _size(path) for cluster in self._clusters.values() for path in cluster.log_files}

    def show(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """Add the log lines of the test's clusters since it began."""
        names = set(getattr(item, "fixturenames", ()))
        for fixture in [each for each in self._clusters if each in names]:
            self.failed.add(fixture)
            for node_id, path in enumerate(self._clusters[fixture].log_files, 1):
                lines = _lines(path, self._began.get(path, 0))
                left_out = max(0, len(lines) - LINES_MAX)
                head = [f"({left_out} lines before these are in {path})"] if left_out else []
                report.sections.append(
                    (f"Log of node {node_id} of {fixture}", "\n".join([*head, *lines[left_out:]]) or "(nothing)")
                )


def leave_logs(directory: str) -> None:
    """Remove the files of nodes, except for their logs."""
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        if os.path.isfile(os.path.join(path, LOG)):
            for inner in os.scandir(path):
                if inner.is_dir(follow_symlinks=False):
                    shutil.rmtree(inner.path, ignore_errors=True)
        elif os.path.isdir(path):
            shutil.rmtree(path, ignore_errors=True)


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except FileNotFoundError:
        return 0


def _lines(path: str, start: int) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            file.seek(start)
            return file.read().splitlines()
    except FileNotFoundError:
        return []
