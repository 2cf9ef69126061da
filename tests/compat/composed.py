"""`make compat ARGS=compose`: the images of docker/ are built by buildah, and the services of each compose file run as the file says.

Each container has a network namespace of its own; published ports are forwarded to one that stands for the host. Then each file keeps
what it promises: health, clients inside and outside, console, registry, logins, and rows of the pipeline on Spark.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from ottla.local import secure_files
from ottla.server.config.properties_file import read_properties
from tests.docker import image_harness
from tests.docker.compose_file import ROOT, SECURE, Service, all_services
from tests.docker.image_harness import ImageHarness
from tests.docker.test_compose import is_outside
from tests.docker.test_secure_compose import librdkafka

FOLDER = ROOT / "docker"
#: The user of the images, who shall be able to read keys: OTTLA_UID of the compose files.
APPUSER = 1000
JARS = ROOT / "build/spark-jars"
ROWS_S_MAX = 420
#: The last line of a node that a signal has ended.
STOPPED = "shut down completed"


@contextmanager
def running(path: Path, folder: Path, *, beside: Path = FOLDER, **mounts: list[str]) -> Iterator[ImageHarness]:
    """Build the images of a compose file, start its services in their order, and wait until all are healthy."""
    folder.mkdir(parents=True)
    others = image_harness.build(path, folder)
    found = all_services(path)
    for image in others:
        print(f"# {path.name}: the image {image} cannot be had here, and its service is not started")
    ours = [each for each in found if each.raw["image"] not in others]
    with ImageHarness(found, folder, beside=beside, extra=mounts) as harness:
        harness.start_all(ours)
        for service in ours:
            if "healthcheck" in service.raw:
                harness.wait_until_healthy(service)
        yield harness


def clients(harness: ImageHarness, service: Service, inside: str, copies: int, *security: str) -> None:
    """Stock clients produce and consume through each address that a node advertises."""
    asked = [("host" if is_outside(each) else inside, each) for each in service.advertised.values()]
    harness.produce_and_consume(asked, copies, *security)


def answered(harness: ImageHarness, where: str, *words: str) -> str:
    """Return the answer to a request of curl from this place."""
    done = harness.run(where, "curl", "-fsS", "--max-time", "20", *words)
    assert done.returncode == 0, f"curl {words} from {where}: {done.stderr}"
    return done.stdout


def three_nodes(folder: Path) -> None:
    """Run compose.yml: the nodes, and a console and a registry at their ports of the host, which know each other."""
    with running(FOLDER / "compose.yml", folder) as harness:
        nodes = [each for each in harness.services if each.name.startswith("kafka-")]
        clients(harness, nodes[0], nodes[-1].name, len(nodes))
        schema = '{"schema": "\\"string\\""}'
        kind = "content-type: application/vnd.schemaregistry.v1+json"
        subject = "http://localhost:8081/subjects/orders-value/versions"
        assert '"id":1' in answered(harness, "host", "-H", kind, "-d", schema, subject)
        assert '\\"string\\"' in answered(harness, "host", f"{subject}/latest")
        assert "orders-value" in answered(harness, "host", "http://localhost:9490/schemas")
        overview = answered(harness, "host", "http://localhost:9490/")
        assert "kafka-3" in overview and "read-only" in overview
        harness.stop(nodes[1])
        assert STOPPED in harness.log(nodes[1])[-2000:], "it was not stopped in order"
        clients(harness, nodes[0], nodes[-1].name, 2)


def roles(folder: Path) -> None:
    """Run compose.roles.yml: brokers and controllers apart."""
    with running(FOLDER / "compose.roles.yml", folder) as harness:
        brokers = [each for each in harness.services if each.name.startswith("broker-")]
        clients(harness, brokers[0], brokers[-1].name, 3)


def secured(path: Path, folder: Path) -> None:
    """Run compose.tls.yml or compose.sasl.yml with keys of `ottla secure init`: clients connect with the properties beside the file."""
    beside = folder / "docker"
    beside.mkdir(parents=True)
    names = [each.name for each in all_services(path)]
    secure_files.make(str(beside / "secrets"), {name: [name, "localhost", "127.0.0.1"] for name in names})
    for each in [beside / "secrets", *(beside / "secrets").rglob("*")]:
        os.chown(each, APPUSER, 0)
    client = f"client.{path.suffixes[0][1:]}.properties"
    for name in ("jaas.conf", client):
        shutil.copy(FOLDER / name, beside)
    security = librdkafka(read_properties((beside / client).read_bytes(), client), beside / "secrets/ca.pem")
    with running(path, folder / "run", beside=beside) as harness:
        for service in harness.services:
            clients(harness, service, service.name, 1, *security)
            ours = (sys.executable, "-m", "ottla", "topic", "list", "-b", service.advertised["EXTERNAL"])
            done = harness.run("host", *ours, "--config", f"docker/{client}", cwd=folder)
            assert done.returncode == 0, done.stderr


def with_a_page(folder: Path) -> None:
    """Run compose.ui.yml: what kafka-ui asks for is there in its place, records and metrics; and its page, if its image can be had."""
    with running(FOLDER / "compose.ui.yml", folder) as harness:
        node, page = harness.services
        clients(harness, node, page.name, 1)
        given = page.environment
        host, _, _ = given["KAFKA_CLUSTERS_0_BOOTSTRAPSERVERS"].partition(":")
        metrics = answered(harness, page.name, f"http://{host}:{given['KAFKA_CLUSTERS_0_METRICS_PORT']}/metrics")
        assert "\nkafka_server_" in metrics or "\nottla_" in metrics
        if page.name in harness.processes:
            assert "<html" in answered(harness, "host", "--retry", "60", "--retry-connrefused", "http://localhost:8080")


def on_spark(folder: Path) -> None:
    """Run compose.spark.yml until the events that it makes are rows of all stages, and draw the report as its first lines say.

    Spark would fetch the connector's jars from Maven's repository, which a container here does not reach: they are mounted.
    """
    subprocess.run(["make", "--silent", "spark-jars"], cwd=ROOT, check=True)
    jars = [f"{JARS}:/home/appuser/build/spark-jars:ro"]
    with running(FOLDER / "compose.spark.yml", folder, pipeline=jars) as harness:
        pipeline = harness.services[-1]
        output = folder / "volumes/pipeline-out"
        until_s = time.monotonic() + ROWS_S_MAX
        for stage in ("bronze", "silver", "gold"):
            while not any((output / stage).rglob("*.parquet")):
                assert harness.processes[pipeline.name].poll() is None, harness.log(pipeline)[-3000:]
                assert time.monotonic() < until_s, f"no rows of {stage}: {harness.log(pipeline)[-3000:]}"
                time.sleep(2)
        words = (FOLDER / "compose.spark.yml").read_text().partition("run --rm pipeline ")[2].splitlines()[0].split()
        done = subprocess.run(harness.inside(pipeline, words), capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-2000:]
        assert list(output.rglob("*.html")), "the report is not in the volume"


STEPS: dict[str, Callable[[Path], None]] = {
    "nodes": three_nodes,
    "roles": roles,
    **{path.suffixes[0][1:]: partial(secured, path) for path in SECURE},
    "ui": with_a_page,
    "spark": on_spark,
}


def missing() -> str | None:
    """Return why the compose files cannot be run here."""
    return image_harness.missing() or (None if shutil.which("curl") else "curl is missing")
