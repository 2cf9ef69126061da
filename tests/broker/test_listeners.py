"""Each client gets the advertised addresses of the listener that it is connected to. Listeners open in their order."""

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
from ottla.server.authorization.authorizer import STANDARD_AUTHORIZER
from tests.broker.conftest import ROOT, eventually
from tests.broker.wire import Wire
from tests.ports import free_ports

NAMES = ("INSIDE", "OUTSIDE", "ANYWHERE", "CONTROLLER")


def accepts(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def start(directory: Path, properties: dict[str, str], ready: str) -> subprocess.Popen[bytes]:
    """Returns once the node's log says `ready`."""
    command = [sys.executable, "-P", "-m", "ottla", "start"]
    for name, value in (properties | {"log.dirs": str(directory / "data")}).items():
        command += ["--override", f"{name}={value}"]
    with (directory / "log").open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=os.environ | {"PYTHONPATH": str(ROOT)})
    eventually(lambda: process.poll() is not None or ready in (directory / "log").read_text(), ready)
    assert process.poll() is None, (directory / "log").read_text()
    return process


def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    process.wait(30)


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    """Start a node with three listeners for clients; return the port of each listener by its name."""
    ports = dict(zip(NAMES, free_ports(len(NAMES)), strict=True))
    hosts = {name: "" if name == "ANYWHERE" else "127.0.0.1" for name in NAMES}
    properties = {
        "listeners": ",".join(f"{name}://{hosts[name]}:{port}" for name, port in ports.items()),
        "advertised.listeners": (
            f"INSIDE://inside.example:1111,OUTSIDE://outside.example:2222,CONTROLLER://127.0.0.1:{ports['CONTROLLER']}"
        ),
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,ANYWHERE:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
    }
    process = start(tmp_path_factory.mktemp("listeners"), properties, "Kafka Server started")
    yield ports
    stop(process)


def advertised(port: int, host: str = "127.0.0.1") -> tuple[str, int]:
    with Wire(port, host) as wire:
        (broker,) = wire.request(MetadataRequest(topics=[]), 9).brokers
        return broker.host, broker.port


@pytest.mark.parametrize(
    ("listener", "expected"), [("INSIDE", ("inside.example", 1111)), ("OUTSIDE", ("outside.example", 2222))]
)
def test_an_advertised_address_is_returned_to_the_clients_of_its_own_listener(
    ports: dict[str, int], listener: str, expected: tuple[str, int]
) -> None:
    assert advertised(ports[listener]) == expected


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.7"])
def test_without_an_advertised_address_a_client_gets_the_one_it_connected_to(ports: dict[str, int], host: str) -> None:
    assert advertised(ports["ANYWHERE"], host) == (host, ports["ANYWHERE"])


def test_the_controllers_listener_serves_no_produce(ports: dict[str, int]) -> None:
    from ottla.protocol.messages.api_versions import ApiVersionsRequest

    with Wire(ports["CONTROLLER"]) as wire:
        answer = wire.request(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)
        keys = {key.api_key for key in answer.api_keys}
    assert 0 not in keys
    assert {52, 62, 63} <= keys  # Vote, BrokerRegistration and BrokerHeartbeat are controllers' APIs.


OPENS_LATER = "Listener CONTROLLER opens once the access control entries are loaded"


def with_an_authorizer(listener: int, controller: int) -> dict[str, str]:
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{listener},CONTROLLER://127.0.0.1:{controller}",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS",
    }


def test_a_node_whose_listeners_all_wait_for_the_access_control_entries_serves_once_it_has_read_them(
    tmp_path: Path,
) -> None:
    listener, controller = free_ports(2)
    properties = with_an_authorizer(listener, controller) | {"early.start.listeners": ""}
    process = start(tmp_path, properties, "Kafka Server started")
    assert accepts(listener) and accepts(controller)
    stop(process)


@pytest.mark.parametrize(("early", "said"), [("CONTROLLER", "(CONTROLLER)"), ("PLAINTEXT", OPENS_LATER)])
def test_before_the_access_control_entries_are_read_early_listeners_accept_and_others_do_not(
    early: str, said: str, tmp_path: Path
) -> None:
    listener, controller, absent = free_ports(3)
    alone = {
        "node.id": "1",
        # The other voter is absent, so that no metadata is ever committed.
        "controller.quorum.voters": f"1@127.0.0.1:{controller},2@127.0.0.1:{absent}",
        "early.start.listeners": early,
        "ottla.format.empty.directories": "true",
    }
    process = start(tmp_path, with_an_authorizer(listener, controller) | alone, said)
    assert accepts(controller) == (early == "CONTROLLER")
    assert not accepts(listener)
    stop(process)
