"""Fixtures for pytest, available as soon as Ottla is installed: `kafka_proc`, `kafka_cluster`, `kafka_topic` and others.

See docs/TESTING.md.

A cluster starts when a test first uses it, and ends with the session, however that ends. With pytest-xdist the process that
starts the workers runs session-scoped clusters; a worker runs those of narrower scopes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, cast

import pytest

from ottla.testing import factories

if TYPE_CHECKING:
    from ottla.testing.clients import Clients, Replayed
    from ottla.testing.cluster import Cluster
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
    group.addoption(
        "--kafka-version", metavar="RELEASE", help="the release of Kafka that clusters look like to clients"
    )
    parser.addini("kafka_version", "the release of Kafka that clusters look like to clients", default="")
    parser.addini("kafka_nodes", "nodes of kafka_cluster", default="3")
    parser.addini("kafka_properties", "properties for every node, a line each", type="linelist")
    parser.addini("kafka_bootstrap", "the running cluster of kafka_noproc", default="")


# These fixtures are functions, and not made by `factories`, so that an editor knows their types.


@pytest.fixture(scope="session")
def kafka_proc(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    """One node for all tests of the session. Tests that break a node use `kafka_to_break`."""
    yield from factories.running_cluster(request, tmp_path_factory, 1)


@pytest.fixture(scope="session")
def kafka_cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    """Three nodes for all tests of the session, or as many as --kafka-nodes or the ini file says."""
    yield from factories.running_cluster(request, tmp_path_factory, None)


@pytest.fixture
def kafka_to_break(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One node for a single test, with all faults: kill, advance, fail_next, disk_full, latency and the others."""
    for own in factories.running_cluster(request, tmp_path_factory, 1, cuttable=True):
        yield cast("Cluster", own)


@pytest.fixture
def kafka_replay(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Replayed]]:
    """A function that sends a recording of `ottla record` to the test's own empty node, and returns the differences."""
    for own in factories.running_cluster(request, tmp_path_factory, 1):
        yield own.replay


kafka_noproc = factories.kafka_noproc()
kafka_producer = factories.kafka_producer()
kafka_consumer = factories.kafka_consumer()


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest) -> str:
    """A topic's name that no other test uses.

    The topic is created by the first client that uses it, or by `kafka_proc.topic(kafka_topic, ...)`.
    """
    return factories.unused_name(request)


@pytest.fixture(autouse=True)
def _kafka_faults_end_with_their_test() -> Iterator[None]:
    """It is set up after the fixtures of wider scopes, and ends after those of the test."""
    factories.SHARED_FAULTS.begin_test()
    yield
    said = factories.SHARED_FAULTS.end_test()
    if said:
        pytest.fail("\n".join(said), pytrace=False)


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
