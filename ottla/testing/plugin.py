"""Fixtures for pytest, there as soon as Ottla is installed: `kafka_proc`, `kafka_cluster`, `kafka_topic` and others. See docs/TESTING.md.

Clusters start when a test first asks for one, and end with the session, however that ends. With pytest-xdist the process that starts
the workers has those of the session; a worker has those of narrower scopes.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from ottla.testing import factories

if TYPE_CHECKING:
    from ottla.testing.shared import SharedClusters

SHARED: pytest.StashKey[SharedClusters] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kafka", "Kafka clusters for tests (Ottla)")
    group.addoption("--kafka-nodes", type=int, metavar="N", help="nodes of kafka_cluster")
    group.addoption(
        "--kafka-property", action="append", default=[], metavar="NAME=VALUE", help="a property for every node"
    )
    group.addoption("--kafka-secure", action="store_true", help="TLS, logins and ACLs; see Cluster.client_settings")
    group.addoption("--kafka-bootstrap", metavar="HOST:PORT", help="the running cluster of kafka_noproc")
    parser.addini("kafka_nodes", "nodes of kafka_cluster", default="3")
    parser.addini("kafka_properties", "properties for every node, a line each", type="linelist")
    parser.addini("kafka_bootstrap", "the running cluster of kafka_noproc", default="")


kafka_proc = factories.kafka_proc()
kafka_cluster = factories.kafka_cluster()
kafka_noproc = factories.kafka_noproc()
kafka_producer = factories.kafka_producer()
kafka_consumer = factories.kafka_consumer()


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest) -> str:
    """A topic's name that no other test uses; the topic is made by the first who asks for it, or by `kafka_proc.topic(kafka_topic, ...)`."""
    return factories.unused_name(request)


# -- Logs of failed tests ------------------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    factories.LOGS.begin_test()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        factories.LOGS.show(item, report)


# -- Workers of pytest-xdist ---------------------------------------------------------------------------------------------


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """xdist calls it for each worker that it is about to start."""
    import sys

    if sys.platform != "win32":
        from ottla.testing.shared import SharedClusters

        stash = node.config.stash
        if SHARED not in stash:
            stash[SHARED] = SharedClusters()
        node.workerinput["kafka_share"] = list(stash[SHARED].place)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """End the clusters, after xdist has ended its workers."""
    shared = session.config.stash.get(SHARED, None)
    if shared is not None:
        del session.config.stash[SHARED]
        shared.close(failed=bool(session.testsfailed))
