"""The end of faults: changes by a test to a shared cluster are undone after it, as with pytest's monkeypatch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ottla.testing.errors import TO_BREAK

if TYPE_CHECKING:
    from ottla.testing.cluster import Cluster
    from ottla.testing.conditions import Condition


class SharedFaults:
    """The shared clusters, by their fixtures, and the condition in which a test has found each of them."""

    def __init__(self) -> None:
        self._clusters: dict[str, Cluster] = {}
        self._found: dict[str, Condition] = {}

    @contextmanager
    def of(self, fixture: str, cluster: Cluster) -> Iterator[None]:
        """Remember the cluster, which has just started: its fixture's tests leave it as they found it."""
        self._clusters[fixture] = cluster
        self._found[fixture] = cluster.condition()
        try:
            yield
        finally:
            del self._clusters[fixture], self._found[fixture]

    def begin_test(self) -> None:
        """Note the conditions. Faults by fixtures of a wider scope belong to all tests of that scope."""
        self._found = {fixture: cluster.condition() for fixture, cluster in self._clusters.items()}

    def end_test(self) -> list[str]:
        """Undo the changes by the test.

        Return a sentence for each cluster to which the test has done something that a shared cluster does not allow.
        """
        said = []
        for fixture, cluster in self._clusters.items():
            found, left = self._found[fixture], cluster.condition()
            if left == found:
                continue
            lasting = left.lasting_since(found)
            cluster.restore(found)
            if lasting:
                said.append(
                    f"{fixture} is shared with other tests, and this test has left it so that {', and '.join(lasting)}: {TO_BREAK}. "
                    "Its nodes run again now, in the time that was"
                )
        return said
