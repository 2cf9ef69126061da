"""A plugin, `-p tests.slow_network`: bytes between the nodes of a test's cluster take longer, as between machines.

On loopback a broker replays the metadata a millisecond after the controller has decided, so that a test, and a command, that asks
another broker than the one that it has changed something with is right by luck.
"""

from __future__ import annotations

from typing import Any

import pytest

from ottla.testing import Cluster

LATENCY_MS = 40


@pytest.fixture(autouse=True, scope="session")
def slow_network() -> Any:
    """Lay the connections of each cluster of several nodes so that they can be slowed, and slow them."""
    make, enter = Cluster.__init__, Cluster.__enter__

    def made(self: Cluster, nodes: int = 3, **more: Any) -> None:
        secured = more.get("secure", False) or not more.get("spoilable", True)
        make(self, nodes, **more if nodes == 1 or secured else {**more, "cuttable": True})

    def entered(self: Cluster) -> Cluster:
        enter(self)
        if self._links is not None:
            self.latency(LATENCY_MS, clients=False)
        return self

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cluster, "__init__", made)
        patch.setattr(Cluster, "__enter__", entered)
        yield
