"""The connection from this machine to a broker: the findings if TLS, a login or an advertised address is wrong."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from ottla.cli.doctor import connection
from ottla.cli.doctor.connection import ConnectionsLook, expiry
from ottla.cli.doctor.findings import DoctorFinding
from ottla.client.security import peer_security
from ottla.local.certificates import Authority
from ottla.protocol.messages.metadata import MetadataResponseBroker
from ottla.server.address import Address
from ottla.server.network.client import Channel
from ottla.server.network.peer_security import PLAINTEXT, PeerSecurity
from ottla.server.network.wire import SecurityRejected
from ottla.server.world import RealWorld
from tests.ottla.conftest import Cli

AUTHORITY = Authority.create("a")
HERE = Address("127.0.0.1", 1)
DAY_MS = 86_400_000


def look(security: PeerSecurity = PLAINTEXT, lines: list[str] | None = None) -> ConnectionsLook:
    world = RealWorld(asyncio.get_running_loop()).world
    return ConnectionsLook(world, security, 30_000, (lines if lines is not None else []).append)


def broker(host: str, port: int) -> MetadataResponseBroker:
    return MetadataResponseBroker(node_id=1, host=host, port=port)


def kinds(found: list[DoctorFinding]) -> list[str]:
    return [each.kind for each in found]


@asynccontextmanager
async def tls_listener(folder: Path) -> AsyncIterator[int]:
    """Run a server that speaks TLS, and closes each connection after the handshake. Yield its port."""
    issued = AUTHORITY.issue("localhost", ["127.0.0.1"])
    (folder / "cert.pem").write_text(issued.chain_pem)
    (folder / "key.pem").write_text(issued.key_pem)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")

    def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(close, "127.0.0.1", 0, ssl=context) as server:
        yield server.sockets[0].getsockname()[1]


async def test_a_listener_with_tls_is_named_as_such_to_who_connects_without(tmp_path: Path) -> None:
    async with tls_listener(tmp_path) as port:
        assert kinds(await look().bootstrap(Address("127.0.0.1", port))) == ["speaks-tls"]
        assert kinds(await look().advertised(broker("127.0.0.1", port), [HERE])) == ["speaks-tls"]


async def test_a_certificate_of_another_authority_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "other.pem").write_text(Authority.create("b").pem)
    properties = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tmp_path / "other.pem"),
    }
    async with tls_listener(tmp_path) as port:
        security = peer_security(RealWorld(asyncio.get_running_loop()).world, properties, "client.properties")
        assert kinds(await look(security).bootstrap(Address("127.0.0.1", port))) == ["tls-rejected"]


async def test_a_login_that_is_rejected_and_a_broker_that_is_silent_are_two_findings(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, _, port = cli.bootstrap.partition(":")
    address = Address(host, int(port))

    async def rejected(channel: Channel) -> None:
        raise SecurityRejected("the login was rejected")

    monkeypatch.setattr(Channel, "versions", rejected)
    assert kinds(await look().bootstrap(address)) == ["login-rejected"]

    async def silent(channel: Channel) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Channel, "versions", silent)
    looking = look()
    looking.step_s = 0.2
    (found,) = await looking.bootstrap(address)
    assert (found.kind, found.problem) == ("no-kafka", "no answer within 0.2 s")


async def test_a_broker_that_does_not_know_the_newer_groups_is_too_old_for_some_clients(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, _, port = cli.bootstrap.partition(":")

    async def old(channel: Channel) -> dict[int, int]:
        return {0: 9}

    monkeypatch.setattr(Channel, "versions", old)
    lines: list[str] = []
    found = await look(lines=lines).advertised(broker(host, int(port)), [Address(host, int(port))])
    assert kinds(found) == ["broker-too-old"] and "speaks Kafka (1 APIs" in lines[0]


async def test_an_advertised_address_that_clients_elsewhere_cannot_use_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unknown = await look().advertised(broker("no-such-host.invalid", 9092), [HERE])
    assert kinds(unknown) == ["advertised-not-resolved"]
    assert kinds(await look().advertised(broker("127.0.0.1", 1), [HERE])) == ["advertised-not-reachable"]

    async def resolved(self: ConnectionsLook, host: str, port: int) -> list[str]:
        return ["192.0.2.1"] if host == "kafka" else ["127.0.0.1"]

    monkeypatch.setattr(ConnectionsLook, "_resolved", resolved)
    elsewhere = [Address("kafka", 9092)]
    assert kinds(await look().advertised(broker("localhost", 1), elsewhere)) == ["advertised-loopback"]


async def test_an_address_that_does_not_answer_in_time_says_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(host: str, port: int) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(connection.asyncio, "open_connection", never)
    looking = look()
    looking.step_s = 0.05
    (found,) = await looking.bootstrap(HERE)
    assert (found.kind, found.problem) == ("not-reachable", "no answer within 0.05 s")


def test_a_certificate_that_ends_within_a_month_is_a_warning_and_a_later_one_is_none() -> None:
    (leaf, *_) = x509.load_pem_x509_certificates(AUTHORITY.issue("localhost").chain_pem.encode())
    end_ms = int(leaf.not_valid_after_utc.astimezone(datetime.UTC).timestamp() * 1000)
    data = leaf.public_bytes(Encoding.DER)
    assert expiry("b:1", data, end_ms - 31 * DAY_MS) == []
    (found,) = expiry("b:1", data, end_ms - 10 * DAY_MS)
    assert (found.kind, found.place) == ("certificate-expires", "b:1") and found.problem.endswith(", 10 days")
    (ended,) = expiry("b:1", data, end_ms + DAY_MS)
    assert ended.problem.endswith(", 0 days")
