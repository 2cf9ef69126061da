"""Each client gets the advertised addresses of the listener that it is connected to."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.protocol.messages.metadata import MetadataRequest
from tests.broker.conftest import ROOT, eventually
from tests.broker.wire import Wire

FIRST_PORT = 25060
INSIDE, OUTSIDE, ANYWHERE, CONTROLLER = range(FIRST_PORT, FIRST_PORT + 4)


def accepts(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module", autouse=True)
def three_listeners(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    directory: Path = tmp_path_factory.mktemp("listeners")
    properties = {
        "log.dirs": str(directory / "data"),
        "listeners": f"INSIDE://127.0.0.1:{INSIDE},OUTSIDE://127.0.0.1:{OUTSIDE},ANYWHERE://:{ANYWHERE},CONTROLLER://127.0.0.1:{CONTROLLER}",
        "advertised.listeners": f"INSIDE://inside.example:1111,OUTSIDE://outside.example:2222,CONTROLLER://127.0.0.1:{CONTROLLER}",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,ANYWHERE:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
    }
    command = [sys.executable, "-P", "-m", "ottla.main", "start"]
    for name, value in properties.items():
        command += ["--override", f"{name}={value}"]
    with (directory / "log").open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=os.environ | {"PYTHONPATH": str(ROOT)})
    eventually(lambda: process.poll() is not None or "Kafka Server started" in (directory / "log").read_text(), "start")
    assert process.poll() is None, (directory / "log").read_text()
    yield
    process.send_signal(signal.SIGTERM)
    process.wait(30)


def advertised(port: int, host: str = "127.0.0.1") -> tuple[str, int]:
    with Wire(port, host) as wire:
        (broker,) = wire.request(MetadataRequest(topics=[]), 9).brokers
        return broker.host, broker.port


@pytest.mark.parametrize(
    ("port", "expected"), [(INSIDE, ("inside.example", 1111)), (OUTSIDE, ("outside.example", 2222))]
)
def test_an_advertised_address_is_returned_to_the_clients_of_its_own_listener(
    port: int, expected: tuple[str, int]
) -> None:
    assert advertised(port) == expected


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.7"])
def test_without_an_advertised_address_a_client_gets_the_one_it_connected_to(host: str) -> None:
    assert advertised(ANYWHERE, host) == (host, ANYWHERE)


def test_the_controllers_listener_serves_no_produce() -> None:
    from ottla.protocol.messages.api_versions import ApiVersionsRequest

    with Wire(CONTROLLER) as wire:
        answer = wire.request(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)
        keys = {key.api_key for key in answer.api_keys}
    assert 0 not in keys
    assert {52, 62, 63} <= keys  # Vote, BrokerRegistration, BrokerHeartbeat
