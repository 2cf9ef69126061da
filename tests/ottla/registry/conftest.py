"""Registries on the node of the command line's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ottla.conftest import Cli
from tests.ottla.registry.instances import Instance, Registries


@pytest.fixture(scope="module")
def registries(cli: Cli) -> Iterator[Registries]:
    """Instances that the tests of a module share."""
    made = Registries(cli.bootstrap)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def registry(registries: Registries) -> Instance:
    """One instance for the tests of a module. Each test uses its own subjects."""
    return registries.at_least(1)[0]
