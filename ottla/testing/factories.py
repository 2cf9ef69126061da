"""Makes fixtures that are clusters: `kafka_proc(...)` and `kafka_cluster(...)`, to be bound to a name in a conftest.py.

from ottla.testing import factories

kafka_strict = factories.kafka_cluster(properties={"auto.create.topics.enable": "false"})
kafka_to_break = factories.kafka_cluster(cuttable=True, scope="function")
kafka_secure = factories.kafka_cluster(secure=True)      clients take **kafka_secure.client_settings
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal

import pytest

if TYPE_CHECKING:
    from ottla.testing.cluster import Cluster

Scope = Literal["session", "package", "module", "class", "function"]
Fixture = Callable[..., object]


def kafka_proc(
    nodes: int = 1,
    *,
    properties: Mapping[str, str] | None = None,
    cuttable: bool = False,
    secure: bool = False,
    scope: Scope = "session",
) -> Fixture:
    """A fixture that is a running cluster of `nodes` processes; `properties` win over those of the command line and the ini file."""
    return _fixture(nodes, properties, cuttable, secure, scope)


def kafka_cluster(
    nodes: int | None = None,
    *,
    properties: Mapping[str, str] | None = None,
    cuttable: bool = False,
    secure: bool = False,
    scope: Scope = "session",
) -> Fixture:
    """A running cluster of three nodes, or as many as the command line or the ini file sets."""
    return _fixture(nodes, properties, cuttable, secure, scope)


def _fixture(
    nodes: int | None, properties: Mapping[str, str] | None, cuttable: bool, secure: bool, scope: Scope
) -> Fixture:
    @pytest.fixture(scope=scope)
    def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
        from ottla.testing.cluster import Cluster

        config = request.config
        count = nodes or int(config.getoption("kafka_nodes") or config.getini("kafka_nodes"))
        every = configured(config) | dict(properties or {})
        # In pytest's own folder: what a worker leaves that is killed goes with the folders of old runs.
        directory = tmp_path_factory.mktemp("kafka")
        try:
            with Cluster(
                count,
                directory=str(directory),
                cuttable=cuttable,
                secure=secure or bool(config.getoption("kafka_secure")),
                per_node=dict.fromkeys(range(1, count + 1), every),
            ) as running:
                yield running
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    return cluster


def configured(config: pytest.Config) -> dict[str, str]:
    """Properties for every node, by their own names: of the ini file, then of the command line."""
    found = {}
    for line in [*config.getini("kafka_properties"), *config.getoption("kafka_property")]:
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise pytest.UsageError(f"a property of Kafka is NAME=VALUE, not {line!r}")
        found[name.strip()] = value.strip()
    return found
