"""The compose files for TLS and logins: each service starts with keys of `ottla secure init`, and clients connect with the properties beside the file."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from ottla.local import secure_files
from ottla.server.config.properties_file import read_properties
from tests.docker.compose_file import ROOT, SECURE, services
from tests.docker.loopback_harness import LoopbackHarness
from tests.docker.namespace_harness import NamespaceHarness, available
from tests.docker.test_compose import is_outside, name_of, wait_until_started

#: The client properties that stay the same in librdkafka's names.
SAME = ("security.protocol", "sasl.mechanism")


def librdkafka(properties: dict[str, str], ca: Path) -> list[str]:
    settings = {name: properties[name] for name in SAME if name in properties} | {"ssl.ca.location": str(ca)}
    if jaas := properties.get("sasl.jaas.config"):
        _, user, _, password, _ = jaas.split('"')
        settings |= {"sasl.username": user, "sasl.password": password}
    return [f"{name}={value}" for name, value in settings.items()]


@pytest.mark.compat
@pytest.mark.timeout(240)
@pytest.mark.parametrize("path", SECURE, ids=name_of)
def test_clients_connect_with_the_properties_beside_the_file(path: Path, tmp_path: Path) -> None:
    found = services(path)
    beside = tmp_path / "docker"
    beside.mkdir()
    harness = (NamespaceHarness if available() else LoopbackHarness)(found, tmp_path, beside=beside)
    hosts = {s.name: [s.hostname, "localhost", "127.0.0.1", harness.address(s)] for s in found}
    secure_files.make(str(beside / "secrets"), hosts)
    client = f"client.{path.suffixes[0][1:]}.properties"
    for name in ("jaas.conf", client):
        shutil.copy(ROOT / "docker" / name, beside)
    security = librdkafka(read_properties((beside / client).read_bytes(), client), beside / "secrets/ca.pem")
    with harness:
        for service in found:
            harness.start(service)
        wait_until_started(harness, found)
        asked = [
            ("host" if is_outside(address) else service.name, address)
            for service in found
            for address in service.advertised.values()
        ]
        harness.produce_and_consume(asked, 1, *security)
        for service in found:
            outside = service.advertised["EXTERNAL"]
            ours = (sys.executable, "-m", "ottla", "topic", "list", "--bootstrap", outside)
            done = harness.run("host", *ours, "--config", f"docker/{client}", cwd=tmp_path)
            assert done.returncode == 0, done.stderr
