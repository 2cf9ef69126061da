"""A node that emulates a release is compared with that release: ApiVersions, DescribeConfigs, Metadata, and codes of errors.

The live brokers run the releases whose jars Maven has. A release with ZooKeeper gets a ZooKeeper of its own jars.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.releases import RELEASES, release_name
from ottla.testing import Cluster
from tests.broker.wire import Wire
from tests.compat.librdkafka import Outcome
from tests.compat.version_errors import errors
from tests.ports import free_base_port
from tools.apache_kafka import ApacheKafka, OracleUnavailable
from tools.apache_kafka.programs import java_command

#: The releases that are compared if none is named. The others have no jars here, or need a ZooKeeper.
COMPARED = ("2.4", "2.8", "3.0", "3.3", "3.5", "3.7", "3.9", "4.0", "4.1", "4.2", "4.3", "4.4")
START_SECONDS_MAX = 120
TOPIC, BROKER = 2, 4
TOPIC_NAME = "compared"
DEFAULT = 5
#: Defaults that depend on the machine or the node, and not on the release: places of files, listeners, and classes of Java.
OF_THE_NODE = frozenset(
    {"log.dir", "log.dirs", "listeners", "advertised.listeners", "ssl.enabled.protocols", "ssl.protocol"}
)
OWN_VALUE = "of this node"


@contextmanager
def live(release: str) -> Iterator[int]:
    """Run a broker of the release. Yield its port. Raises OracleUnavailable."""
    port = free_base_port()
    if not RELEASES[release].has_zookeeper:
        with ApacheKafka(port, version=release, quick=True, jvm="-Xmx512M -XX:+UseSerialGC"):
            yield port
        return
    with tempfile.TemporaryDirectory(prefix="zookeeper-") as folder:
        place = Path(folder)
        properties = {
            "broker.id": "1", "listeners": f"PLAINTEXT://127.0.0.1:{port}", "zookeeper.connect": f"127.0.0.1:{port + 1}",
            "log.dirs": str(place / "logs"), "offsets.topic.replication.factor": "1",
        }  # fmt: skip
        file = place / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        zookeeper = ("org.apache.zookeeper.server.ZooKeeperServerMain", str(port + 1), str(place / "zookeeper"))
        with _java(release, place, *zookeeper), _java(release, place, "kafka.Kafka", str(file)):
            _wait(port)
            yield port


@contextmanager
def _java(release: str, place: Path, main_class: str, *arguments: str) -> Iterator[None]:
    with open(place / f"{main_class}.log", "wb") as log:
        command = java_command(main_class, *arguments, version=release)
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=place)
        try:
            yield
        finally:
            process.kill()
            process.wait()


def _wait(port: int) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            with Wire(port) as wire:
                if wire.request(MetadataRequest(topics=[]), 1).brokers:
                    return
        except OSError:
            pass
        time.sleep(0.2)
    raise OracleUnavailable(f"no answer within {START_SECONDS_MAX} s")


def facts(port: int, release: str) -> dict[str, Any]:
    """Return the facts that a broker shows to a client, by their names."""
    found: dict[str, Any] = {}
    with Wire(port) as wire:
        versions = wire.request(ApiVersionsRequest(), 0)
        for row in versions.api_keys:
            found[f"api {row.api_key}"] = (row.min_version, row.max_version)
        if found["api 18"][1] >= 3:
            named = wire.request(ApiVersionsRequest("compared", "1"), found["api 18"][1])
            for each in named.supported_features:
                found[f"feature {each.name}"] = (each.min_version, each.max_version)
            for each in named.finalized_features:
                found[f"finalized {each.name}"] = (each.min_version_level, each.max_version_level)
        topic = CreatableTopic(name=TOPIC_NAME, num_partitions=1, replication_factor=1)
        wire.request(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 2)
        version = min(3, found["api 32"][1])
        for kind, name in ((BROKER, "1"), (TOPIC, TOPIC_NAME)):
            resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
            (described,) = wire.request(DescribeConfigsRequest(resources=[resource]), version).results
            for row in described.configs:
                if row.name.startswith("ottla.") and RELEASES[release].is_newest:
                    continue  # a node that emulates a release does not describe tables
                is_default = row.config_source == DEFAULT and row.name not in OF_THE_NODE
                value = row.value if is_default else OWN_VALUE
                found[f"config {kind} {row.name}"] = (value, row.config_type, row.is_sensitive, row.read_only)
        served = {row.api_key: (row.min_version, row.max_version) for row in versions.api_keys}
        found |= {f"error: {what}": code for what, code in errors(wire, served)}
        metadata = wire.request(MetadataRequest(topics=None), 1)
        found["controller"] = metadata.controller_id in {broker.node_id for broker in metadata.brokers}
    return found


def differences(release: str) -> list[str]:
    """Return the differences between the live broker and the emulated one. Raises OracleUnavailable."""
    with live(release) as port:
        theirs = facts(port, release)
    with Cluster(1, per_node={1: {"ottla.advertised.release": release}}) as cluster:
        ours = facts(int(cluster.bootstrap.rpartition(":")[2]), release)
    names = sorted(theirs.keys() | ours.keys())
    return [
        f"{each}: {theirs.get(each)} there, {ours.get(each)} here"
        for each in names
        if _differ(theirs.get(each), ours.get(each))
    ]


def _differ(there: Any, here: Any) -> bool:
    """Return whether two facts differ. A value that a node sets by itself is not compared."""
    if isinstance(there, tuple) and isinstance(here, tuple) and OWN_VALUE in (there[0], here[0]):
        return bool(there[1:] != here[1:])
    return bool(there != here)


def outcomes(names: list[str], report: Callable[[Outcome], Outcome]) -> list[Outcome]:
    """Compare the named releases, or all."""
    found = []
    for name in names or COMPARED:
        begin, result, why = time.monotonic(), "PASS", "live"
        try:
            release = release_name(name)
            lines = differences(release)
            for line in lines:
                print(f"  {release} {line}")
            if lines:
                result, why = "FAIL", f"{len(lines)} differences"
        except OracleUnavailable as unavailable:
            result, why = "SKIP", f"by its specification alone: {unavailable}"
        found.append(report(Outcome(f"versions-{name}", result, time.monotonic() - begin, why)))
    return [each for each in found if each.result != "SKIP"]
