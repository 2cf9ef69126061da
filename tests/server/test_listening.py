"""The addresses of a listener, by its host: each one of a name, both families for every address."""

from __future__ import annotations

import asyncio
import errno
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ottla.server import listening
from ottla.server.config.key import ConfigError
from ottla.server.config.listeners import read_endpoints
from ottla.server.listening import bound_sockets, of_every_family, shown
from ottla.server.transport import TcpNetwork
from tests.needs import needs_root, skip_because

IPV4, IPV6 = "127.0.0.1", "::1"
#: An address that no machine has (RFC 5737).
ELSEWHERE = "192.0.2.1"


@pytest.fixture(autouse=True)
def has_ipv6() -> None:
    try:
        with socket.socket(socket.AF_INET6) as tried:
            tried.bind((IPV6, 0))
    except OSError as failure:
        skip_because(f"no IPv6 here: {failure}")


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The addresses of names, in the resolver's order."""
    known: dict[str, list[str]] = {}
    ask = socket.getaddrinfo

    def answer(host: str, *arguments: Any, **options: Any) -> list[Any]:
        return [row for each in known.get(host, [host]) for row in ask(each, *arguments, **options)]

    monkeypatch.setattr(listening.socket, "getaddrinfo", answer)
    return known


def bound(stack: ExitStack, host: str, port: int = 0) -> list[socket.socket]:
    made = bound_sockets(host, port)
    for each in made:
        stack.enter_context(each)
        each.listen()
    return made


def reached(port: int) -> list[str]:
    """Return which of the two loopback addresses accepts a connection."""
    found = []
    for host in (IPV4, IPV6):
        try:
            socket.create_connection((host, port), 5).close()
        except ConnectionRefusedError:
            continue
        found.append(host)
    return found


@pytest.mark.parametrize("order", [[IPV6, IPV4], [IPV4, IPV6]])
def test_a_name_is_bound_at_each_of_its_addresses_ipv4_first(names: dict[str, list[str]], order: list[str]) -> None:
    names["both"] = order
    with ExitStack() as stack:
        made = bound(stack, "both")
        assert shown(made) == [IPV4, IPV6]
        assert len({each.getsockname()[1] for each in made}) == 1, "a free port is that of both"
        assert reached(made[0].getsockname()[1]) == [IPV4, IPV6]


@pytest.mark.parametrize(
    ("host", "families"),
    [("", [IPV4, IPV6]), (IPV4, [IPV4]), (IPV6, [IPV6]), ("0.0.0.0", [IPV4]), ("::", [IPV6])],
)
def test_an_address_is_bound_as_it_is_and_the_empty_host_in_both_families(host: str, families: list[str]) -> None:
    with ExitStack() as stack:
        (made,) = bound(stack, host)
        assert reached(made.getsockname()[1]) == families
        assert shown([made]) == ([host] if host else ["0.0.0.0", "::"])


def test_all_addresses_of_each_family_may_share_a_port() -> None:
    with ExitStack() as stack:
        (first,) = bound(stack, "0.0.0.0")
        port = first.getsockname()[1]
        bound(stack, "::", port)
        assert reached(port) == [IPV4, IPV6]


def test_an_address_of_another_machine_is_left_out_of_a_name(names: dict[str, list[str]]) -> None:
    names["two-machines"] = [ELSEWHERE, IPV6]
    with ExitStack() as stack:
        assert shown(bound(stack, "two-machines")) == [IPV6]
    names["two-machines"] = [ELSEWHERE]
    with pytest.raises(OSError, match=ELSEWHERE) as raised:
        bound_sockets("two-machines", 0)
    assert raised.value.errno == errno.EADDRNOTAVAIL


def test_a_port_that_is_in_use_at_one_of_the_addresses_is_refused_with_it(names: dict[str, list[str]]) -> None:
    names["both"] = [IPV4, IPV6]
    with socket.socket(socket.AF_INET6) as other:
        other.bind((IPV6, 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(OSError, match=r"\(::1\)") as raised:
            bound_sockets("both", port)
        assert raised.value.errno == errno.EADDRINUSE
        with ExitStack() as stack:  # the other address was released
            bound(stack, IPV4, port)


async def test_a_server_accepts_at_all_its_addresses_and_none_once_it_is_closed(names: dict[str, list[str]]) -> None:
    names["both"] = [IPV6, IPV4]
    loop = asyncio.get_running_loop()
    accepted: list[asyncio.Protocol] = []
    accepted_one = asyncio.Event()

    class Accepted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            accepted.append(self)
            accepted_one.set()

    tasks: list[asyncio.Task[None]] = []

    def spawn(work: Any, name: str) -> asyncio.Task[None]:
        tasks.append(loop.create_task(work))
        return tasks[-1]

    server = await TcpNetwork(loop, spawn).listen("both", 0, Accepted)
    assert server.addresses == [IPV4, IPV6]
    assert await asyncio.to_thread(reached, server.port) == [], "bound, and refusing"
    await server.begin()
    server.hold(0.01)
    assert await asyncio.to_thread(reached, server.port) == [IPV4, IPV6]
    while len(accepted) < 2:
        await accepted_one.wait()
        accepted_one.clear()
    await server.close()
    assert await asyncio.to_thread(reached, server.port) == []


def hosts_of(listeners: str) -> list[str]:
    values: Any = {
        "listeners": listeners.split(","),
        "advertised.listeners": None,
        "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
        "controller.listener.names": [],
    }
    return [each.host for each in read_endpoints(values)]


@pytest.mark.parametrize(
    ("listeners", "hosts"),
    [
        ("A://0.0.0.0:9092", [""]),
        ("A://[::]:9092", [""]),
        ("A://:9092", [""]),
        ("A://localhost:9092", ["localhost"]),
        ("A://[::]:9092,B://0.0.0.0:9093", ["", ""]),
        ("A://[::]:0,B://0.0.0.0:0", ["", ""]),
        ("A://[::]:9092,B://0.0.0.0:9092", ["::", "0.0.0.0"]),
        ("A://[::1]:9092,B://0.0.0.0:9092", ["::1", "0.0.0.0"]),
    ],
)
def test_every_address_is_of_both_families_unless_another_listener_has_the_port(
    listeners: str, hosts: list[str]
) -> None:
    assert hosts_of(listeners) == hosts


def test_a_name_shares_its_port_with_no_other_listener() -> None:
    with pytest.raises(ConfigError, match="must have a different port"):
        hosts_of("A://localhost:9092,B://[::1]:9092")


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "[::]", "*"])
def test_the_other_listeners_take_each_form_of_every_address(host: str) -> None:
    assert of_every_family(host) == ""


#: Prints the addresses at which `localhost` is bound.
SAY = "from ottla.server.listening import *; print(*shown(bound_sockets('localhost', 0)))"


@needs_root
@pytest.mark.parametrize(
    "lines", ["127.0.0.1 localhost\n::1 localhost", "::1 localhost ip6-localhost\n127.0.0.1 localhost"]
)
def test_localhost_of_debians_hosts_file_serves_both_families(tmp_path: Path, lines: str) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text(lines + "\n")
    command = f'mount --bind {hosts} /etc/hosts && exec {sys.executable} -c "{SAY}"'
    said = subprocess.run(["unshare", "-m", "sh", "-c", command], capture_output=True, text=True)
    skip_because(f"no namespace of mounts here: {said.stderr.strip()}" if said.returncode else None)
    assert said.stdout.split() == [IPV4, IPV6]
