"""Nodes start with the environment of each compose file, Ottla's and those of tutorials with another image line, in network
namespaces; stock clients reach them from inside and outside through the advertised addresses.
"""

from __future__ import annotations

import re
import socket
import sys
import time
import tomllib
from pathlib import Path

import pytest

from ottla.cli.application import parsed
from ottla.cli.commands import console, registry
from ottla.container.checks import check_properties
from ottla.container.resolve import resolve
from tests.docker.compose_file import OURS, ROOT, SECURE, SEEDS, Service, load, services
from tests.docker.harness import READY, ContainerHarness
from tests.docker.loopback_harness import LoopbackHarness
from tests.docker.namespace_harness import NamespaceHarness, available

ALL = [*OURS, *SEEDS]
START_S_MAX = 90

needs_namespaces = pytest.mark.skipif(
    not available(), reason="network namespaces cannot be made here: needs root and ip"
)


def name_of(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", [*ALL, *SECURE], ids=name_of)
def test_every_environment_is_understood(path: Path) -> None:
    found = services(path)
    assert found
    ids = set()
    for service in found:
        config = check_properties(resolve(service.environment, service.read))
        ids.add(config.node_id)
        for listener, address in service.advertised.items():
            endpoint = next(e for e in config.broker_endpoints if e.name == listener)
            assert f"{endpoint.advertised_host}:{endpoint.advertised_port}" == address
    assert len(ids) == len(found)


@pytest.mark.parametrize("path", [*OURS, *SECURE], ids=name_of)
def test_our_files_keep_data_restart_and_watch_health(path: Path) -> None:
    whole = load(path)
    for service in services(path):
        data = "/bitnami/kafka/data" if "KAFKA_CFG_NODE_ID" in service.environment else "/var/lib/kafka/data"
        assert any(volume.endswith(f":{data}") for volume in service.raw["volumes"])
        assert service.raw["restart"] == "unless-stopped"
        assert service.raw["healthcheck"]["test"] == ["CMD", "/usr/local/bin/ottla-health"]
        named = {volume.split(":")[0] for volume in service.raw["volumes"] if not volume.startswith("./")}
        assert named <= set(whole["volumes"])
    published = [host for service in services(path) for host, _ in service.ports]
    assert len(set(published)) == len(published)


def test_console_and_registry_know_the_nodes_and_are_published_for_this_machine_only() -> None:
    path = ROOT / "docker" / "compose.yml"
    found = {service.name: service for service in services(path, beside=True)}
    nodes = [service.advertised["INTERNAL"] for service in services(path)]
    given = {}
    for name, app in {"console": console.app, "registry": registry.app}.items():
        program, command, *arguments = found[name].raw["command"]
        verb, chosen = parsed(app, arguments)
        assert (program, command, verb) == ("ottla", name, app.default_command)
        assert chosen.arguments["connection"].bootstrap.split(",") == nodes
        assert all(port.startswith("127.0.0.1:") for port in found[name].raw["ports"])
        given[name] = chosen.arguments
    assert given["console"]["no_login"] and given["console"]["registry"] == [f"http://{given['registry']['advertise']}"]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for name, pins in {"console": "requirements.txt", "registry": "registry-requirements.txt"}.items():
        required = (ROOT / "docker" / pins).read_text()
        assert all(f"\n{re.split('[>;]', package)[0]}==" in required for package in extras[name]), name


def test_what_the_pipelines_services_run_is_what_the_pipeline_understands() -> None:
    from ottla.pipeline.main import parser

    path = ROOT / "docker" / "compose.spark.yml"
    found = [raw for raw in load(path)["services"].values() if raw["image"] == "ottla-pipeline"]
    chosen = []
    for raw in found:
        program, *arguments = raw["command"]
        assert program == "ottla-pipeline" and "environment" not in raw, "it reads no variables"
        options = parser().parse_args(arguments)
        assert options.bootstrap in services(path)[0].advertised.values()
        assert any(volume.endswith(f":{options.output}") for volume in raw["volumes"])
        chosen.append(arguments[0])
    assert sorted(chosen) == ["generate", "run"]


def wait_until_started(harness: ContainerHarness, found: list[Service]) -> None:
    deadline = time.monotonic() + START_S_MAX
    for service in found:
        while READY not in harness.log(service):
            process = harness.processes[service.name]
            assert process.poll() is None, f"{service.name} ended:\n{harness.log(service)[-3000:]}"
            assert time.monotonic() < deadline, f"{service.name} did not start:\n{harness.log(service)[-3000:]}"
            time.sleep(0.1)


def produce_and_consume(harness: ContainerHarness, found: list[Service]) -> Service:
    """Produce and consume through every address that the first broker advertises."""
    brokers = [service for service in found if service.environment.get("KAFKA_PROCESS_ROLES") != "controller"]
    for service in found:
        harness.start(service)
    wait_until_started(harness, found)
    service = brokers[0]
    inside = brokers[-1].name
    asked = [("host" if is_outside(address) else inside, address) for address in service.advertised.values()]
    harness.produce_and_consume(asked, min(3, len(brokers)))
    return service


def wait_until_healthy(harness: ContainerHarness, service: Service) -> None:
    """Run the health check of the compose file until it passes, with the image's own curl."""
    deadline = time.monotonic() + START_S_MAX
    _, program, *arguments = service.raw["healthcheck"]["test"]
    command = [sys.executable, str(ROOT / "docker/image" / program), *arguments]
    while (done := harness.run(service.name, *command)).returncode:
        assert time.monotonic() < deadline, f"{service.name}: {done.stderr}{harness.log(service)[-3000:]}"
        time.sleep(0.2)


def is_outside(address: str) -> bool:
    return address.startswith("localhost:")


#: Where namespaces can be made, one file is enough to show that the other harness works, too.
WITHOUT_NAMESPACES = ALL if not available() else [path for path in OURS if path.stem == "compose"]


@pytest.mark.compat
@pytest.mark.timeout(180)
@pytest.mark.parametrize("path", WITHOUT_NAMESPACES, ids=name_of)
def test_they_do_so_on_loopback_addresses_where_namespaces_cannot_be_made(path: Path, tmp_path: Path) -> None:
    found = services(path)
    for port in (host for service in found for host, _ in service.ports):
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if sock.connect_ex(("127.0.0.1", port)) == 0:
                pytest.skip(f"port {port}, which the file publishes, is in use on this machine")
    with LoopbackHarness(found, tmp_path) as harness:
        produce_and_consume(harness, found)


@needs_namespaces
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "path", [OURS[0], *(pytest.param(path, marks=pytest.mark.compat) for path in ALL[1:])], ids=name_of
)
def test_clients_inside_and_outside_produce_and_consume(path: Path, tmp_path: Path) -> None:
    found, beside = services(path), services(path, beside=True)
    with NamespaceHarness([*found, *beside], tmp_path) as harness:
        service = produce_and_consume(harness, found)
        health = harness.run(service.name, "bash", str(ROOT / "docker/image/ottla-health"))
        assert health.returncode == 0, health.stderr
        for each in beside:
            harness.start(each)
        for each in beside:
            wait_until_healthy(harness, each)
    for service in found:
        if "KAFKA_JMX_PORT" in service.environment:
            assert "KAFKA_JMX_PORT: there is no JVM and no JMX here" in harness.log(service)
