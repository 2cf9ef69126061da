"""The cluster of three that the tests of a module share; each test leaves it as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.testing import Cluster
from tests.cluster.shared import STEADY, clear


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    # A writer that lives on asks for its topic after the deletion, and must not create it again. STEADY: when another controller is
    # elected, the sessions of its brokers are not confirmed yet, and a stray may take the place of one.
    with Cluster(3, auto_create_topics_enable="false", **STEADY) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Iterator[Cluster]:
    yield running
    clear(running)
