"""Factories of fixtures, which a conftest.py binds to names: clusters, and what tests use of them.

from ottla.testing import factories

kafka_strict = factories.kafka_cluster(properties={"auto.create.topics.enable": "false"})
three_to_break = factories.kafka_cluster(cuttable=True, scope="function")
kafka_secure = factories.kafka_cluster(secure=True)      clients take **kafka_secure.client_settings
orders = factories.kafka_topic("kafka_strict", partitions=3, seed="orders.jsonl")      the topic's name
alice = factories.kafka_user("kafka_secure", "write topic:orders")      settings of a client
"""

from __future__ import annotations

import shutil
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import pytest

from ottla.testing.faults_end import SharedFaults
from ottla.testing.node_logs import ShownLogs, leave_logs

if TYPE_CHECKING:
    import confluent_kafka

    from ottla.testing.attached import Attached
    from ottla.testing.clients import Clients, Seed
    from ottla.testing.cluster import Cluster
    from ottla.testing.snapshots import ClusterSnapshot

T = TypeVar("T")
Scope: TypeAlias = Literal["session", "package", "module", "class", "function"]
#: A fixture that gives tests a T. With pytest-xdist a session-scoped cluster has only the verbs of `Clients`.
Fixture: TypeAlias = Callable[..., T]

ON_WINDOWS = "Ottla's nodes run on Linux and macOS: on Windows run the tests in WSL, or with kafka_noproc against a cluster elsewhere"
FLUSH_SECONDS_MAX = 30.0
#: The logs of this process's clusters (plugin.py shows them).
LOGS = ShownLogs()
#: The clusters of this process that several tests use.
SHARED_FAULTS = SharedFaults()


def kafka_proc(
    nodes: int = 1,
    *,
    properties: Mapping[str, str] | None = None,
    cuttable: bool = False,
    secure: bool = False,
    scope: Scope = "session",
    shared: bool | None = None,
    version: str | None = None,
) -> Fixture[Cluster]:
    """Return a fixture that is a running cluster of `nodes` processes; `properties` win over those of the command line and the ini file.

    With pytest-xdist a session-scoped cluster is `shared` by all workers, unless it is cuttable: tests must not break its
    nodes. `version` is the release of Apache Kafka that clients find, as "2.8" (docs/EMULATE.md).
    """
    return _cluster(nodes, properties, cuttable, secure, scope, shared, version)


def kafka_cluster(
    nodes: int | None = None,
    *,
    properties: Mapping[str, str] | None = None,
    cuttable: bool = False,
    secure: bool = False,
    scope: Scope = "session",
    shared: bool | None = None,
    version: str | None = None,
) -> Fixture[Cluster]:
    """Return a running cluster of three nodes, or of as many as the command line or the ini file says."""
    return _cluster(nodes, properties, cuttable, secure, scope, shared, version)


def _cluster(
    nodes: int | None,
    properties: Mapping[str, str] | None,
    cuttable: bool,
    secure: bool,
    scope: Scope,
    shared: bool | None,
    version: str | None,
) -> Fixture[Cluster]:
    @pytest.fixture(scope=scope)
    def cluster(
        request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[Cluster | Attached]:
        yield from running_cluster(request, tmp_path_factory, nodes, properties, cuttable, secure, shared, version)

    return cluster


def running_cluster(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    nodes: int | None,
    properties: Mapping[str, str] | None = None,
    cuttable: bool = False,
    secure: bool = False,
    shared: bool | None = None,
    version: str | None = None,
) -> Iterator[Cluster | Attached]:
    """Run the cluster of a fixture; this is the fixture's body.

    The scope comes from the request, and so does the release if the request has one as its parameter.
    """
    _skip_on_windows()
    from ottla.testing.cluster import Cluster
    from ottla.testing.shared import WantedCluster, ask

    config = request.config
    wanted = WantedCluster(
        str(request.fixturename),
        nodes or int(config.getoption("kafka_nodes") or config.getini("kafka_nodes")),
        configured(config) | emulated(config, getattr(request, "param", version)) | dict(properties or {}),
        secure or bool(config.getoption("kafka_secure")),
    )
    at = getattr(config, "workerinput", {}).get("kafka_share")
    if at is not None and (request.scope == "session" and not cuttable if shared is None else shared):
        running: Cluster | Attached = ask(at, wanted, str(tmp_path_factory.getbasetemp().parent))
        LOGS.add(wanted.fixture, running)
        try:
            yield running
        finally:
            LOGS.remove(wanted.fixture)
        return
    # The folder is pytest's own: if a worker is killed, it is removed with the folders of old runs.
    directory = str(tmp_path_factory.mktemp("kafka"))
    started = Cluster(
        wanted.nodes,
        directory=directory,
        cuttable=cuttable,
        secure=wanted.secure,
        per_node=dict.fromkeys(range(1, wanted.nodes + 1), wanted.properties),
    )
    yield from _running(request, started, directory)


def emulated(config: pytest.Config, version: str | None) -> dict[str, str]:
    """Return the property for the release that clients see: the fixture's own, or that of the command line or of the ini file."""
    wanted = version or config.getoption("kafka_version") or config.getini("kafka_version")
    if not wanted:
        return {}
    from ottla.protocol.releases import UnknownRelease, release_name

    try:
        return {"ottla.advertised.release": release_name(str(wanted))}
    except UnknownRelease as unknown:
        raise pytest.UsageError(f"kafka_version: {unknown}") from None


def _skip_on_windows() -> None:
    if sys.platform == "win32":
        pytest.skip(ON_WINDOWS)


def _running(request: pytest.FixtureRequest, cluster: Cluster, directory: str) -> Iterator[Cluster]:
    """Start the cluster, and end it after the tests.

    Its directory is removed, except for the logs if a test, or the start, has failed.
    """
    fixture = str(request.fixturename)
    failed = True
    LOGS.add(fixture, cluster)
    try:
        cluster.start(*cluster.nodes)
        failed = False
        if request.scope == "function":
            yield cluster
        else:
            with SHARED_FAULTS.of(fixture, cluster):
                yield cluster
    finally:
        failed = LOGS.remove(fixture) or failed
        cluster.close(kill=True)
        if failed:
            leave_logs(directory)
        else:
            shutil.rmtree(directory, ignore_errors=True)


def kafka_noproc(
    bootstrap: str | None = None,
    *,
    settings: Mapping[str, str] | None = None,
    config_file: str | None = None,
    scope: Scope = "session",
) -> Fixture[Clients]:
    """Return a fixture for a cluster that already runs: at `bootstrap`, or at the address in --kafka-bootstrap or the ini file.

    `settings` are those of confluent-kafka for a cluster that wants a login; `config_file` has client properties for topics and records.
    """

    @pytest.fixture(scope=scope)
    def attached(request: pytest.FixtureRequest) -> Attached:
        from ottla.testing.attached import Attached

        config = request.config
        place = bootstrap or config.getoption("kafka_bootstrap") or config.getini("kafka_bootstrap")
        if not place:
            raise pytest.UsageError(
                "kafka_noproc is a cluster that runs already: --kafka-bootstrap HOST:PORT says where"
            )
        return Attached(place, settings, config_file)

    return attached


def kafka_snapshot(
    fill: Callable[[Cluster], object],
    nodes: int = 1,
    *,
    properties: Mapping[str, str] | None = None,
    cuttable: bool = False,
    secure: bool = False,
    scope: Scope = "session",
) -> Fixture[ClusterSnapshot[Cluster]]:
    """Return a fixture for a snapshot of a cluster that `fill(cluster)` has filled once. `kafka_fork` gives tests forks of it."""

    @pytest.fixture(scope=scope)
    def snapshot(request: pytest.FixtureRequest) -> Iterator[ClusterSnapshot[Cluster]]:
        _skip_on_windows()
        from ottla.testing.cluster import Cluster

        every = configured(request.config) | dict(properties or {})
        with Cluster(
            nodes, cuttable=cuttable, secure=secure, per_node=dict.fromkeys(range(1, nodes + 1), every)
        ) as cluster:
            fill(cluster)
            taken = cluster.snapshot()
        with taken:
            yield taken

    return snapshot


def kafka_fork(snapshot: str, *, scope: Scope = "function") -> Fixture[Cluster]:
    """Return a fixture for a new cluster with the data of that snapshot."""

    @pytest.fixture(scope=scope)
    def fork(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
        taken: ClusterSnapshot[Cluster] = request.getfixturevalue(snapshot)
        directory = str(tmp_path_factory.mktemp("kafka"))
        yield from _running(request, taken.fork(directory), directory)

    return fork


def kafka_topic(
    cluster: str = "kafka_proc",
    *,
    partitions: int = 1,
    configs: Mapping[str, str] | None = None,
    seed: Seed = (),
    scope: Scope = "function",
) -> Fixture[str]:
    """Return a fixture for the name of a new topic in that fixture's cluster.

    `seed` is a file or a list (ottla/testing/clients.py).
    """

    @pytest.fixture(scope=scope)
    def topic(request: pytest.FixtureRequest) -> str:
        running: Clients = request.getfixturevalue(cluster)
        return running.topic(unused_name(request), partitions=partitions, configs=configs, seed=seed)

    return topic


def kafka_user(cluster: str, *allowed: str, scope: Scope = "function") -> Fixture[dict[str, str]]:
    """Return a fixture with a client's settings for a new user of that secure cluster.

    `allowed` is written as for `ottla acl add`.
    """

    @pytest.fixture(scope=scope)
    def user(request: pytest.FixtureRequest) -> dict[str, str]:
        running: Clients = request.getfixturevalue(cluster)
        return running.add_user(unused_name(request), *allowed)

    return user


def kafka_producer(
    cluster: str = "kafka_proc", *, scope: Scope = "function", **settings: Any
) -> Fixture[confluent_kafka.Producer]:
    """Return a fixture for a producer of confluent-kafka, which is flushed at the end.

    Settings have underscores in place of dots.
    """

    @pytest.fixture(scope=scope)
    def producer(request: pytest.FixtureRequest) -> Iterator[confluent_kafka.Producer]:
        running: Clients = request.getfixturevalue(cluster)
        made = running.producer(**settings)
        yield made
        made.flush(FLUSH_SECONDS_MAX)

    return producer


def kafka_consumer(
    cluster: str = "kafka_proc", *, scope: Scope = "function", **settings: Any
) -> Fixture[confluent_kafka.Consumer]:
    """Return a fixture for a consumer of confluent-kafka in its own group, which reads from the beginning, and has not yet
    subscribed.
    """

    @pytest.fixture(scope=scope)
    def consumer(request: pytest.FixtureRequest) -> Iterator[confluent_kafka.Consumer]:
        running: Clients = request.getfixturevalue(cluster)
        made = running.consumer(**settings)
        yield made
        made.close()

    return consumer


def unused_name(request: pytest.FixtureRequest) -> str:
    """Return a name that no other test uses: the clusters live as long as the session, and so do their topics."""
    name = "".join(char if char.isascii() and char.isalnum() else "-" for char in request.node.name)
    return f"{name[:200]}-{uuid.uuid4().hex[:8]}"


def configured(config: pytest.Config) -> dict[str, str]:
    """Return the properties for every node, by their real names: those of the ini file, then those of the command line."""
    found = {}
    for line in [*config.getini("kafka_properties"), *config.getoption("kafka_property")]:
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise pytest.UsageError(f"a property of Kafka is NAME=VALUE, not {line!r}")
        found[name.strip()] = value.strip()
    return found
