"""Logins by GSSAPI with a real KDC, frame by frame. They are skipped with the reason if there is none."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from ottla.client.security import peer_security
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.server.clock import Clock
from ottla.server.config.key import ConfigError
from ottla.server.handlers.sasl import sasl_authenticate, sasl_handshake
from ottla.server.network.client import Channel
from ottla.server.network.peer_security import PeerSecurity
from ottla.server.network.route import Route
from ottla.server.network.wire import ChannelClosed
from ottla.server.sasl import gssapi
from ottla.server.sasl.gssapi import GssapiClient
from ottla.server.sasl.kerberos import Initiating, PrincipalKeys
from ottla.server.sasl.login import LoginRules
from ottla.server.sasl.peer_login import Exchanges, PeerLogin
from ottla.server.world import RealWorld
from tests.kdc import REALM, Kdc, kdc_in
from tests.manual_clock import ManualClock
from tests.server.tiny_node import RawClient, TinyNode, heartbeat, request, tiny_node

HOST = "127.0.0.1"
SERVICE = f"kafka/{HOST}"
JAAS = "listener.name.clients.gssapi.sasl.jaas.config"
VALUES = {"sasl.kerberos.service.name": "kafka", "sasl.kerberos.principal.to.local.rules": ["DEFAULT"]}


class Realm(NamedTuple):
    kdc: Kdc
    keytab: str
    alice: PrincipalKeys


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    with kdc_in(tmp_path_factory.mktemp("kdc")) as kdc:
        alice = f"alice@{REALM}"
        yield Realm(kdc, kdc.add(SERVICE), PrincipalKeys(kdc.add("alice"), alice))


def options(realm: Realm, **changes: str) -> dict[str, str]:
    return {"useKeyTab": "true", "storeKey": "true", "keyTab": realm.keytab, "principal": SERVICE} | changes


@asynccontextmanager
async def node(realm: Realm, session_ms: int = 0, **values: Any) -> AsyncIterator[TinyNode]:
    mechanism = gssapi.mechanism(JAAS, options(realm), VALUES | values)
    routes = (Route(17, sasl_handshake), Route(36, sasl_authenticate))
    async with tiny_node(
        *routes, login_rules=LoginRules({"GSSAPI": mechanism}, 524_288, 0, {"GSSAPI": session_ms})
    ) as made:
        yield made


@asynccontextmanager
async def channel(to: TinyNode, client: Exchanges, clock: Clock | None = None) -> AsyncIterator[Channel]:
    real = RealWorld(asyncio.get_running_loop())
    world = replace(real.world, clock=clock or real.world.clock)
    login = PeerLogin("GSSAPI", client, real.workers, world.clock)
    made = Channel(world, HOST, to.port, "peer", PeerSecurity(login=login))
    try:
        yield made
    finally:
        made.close()
        await real.close()


def as_alice(realm: Realm) -> Exchanges:
    return gssapi.client("property", JAAS, options(realm, keyTab=realm.alice.keytab, principal="alice"), VALUES)


@pytest.mark.parametrize(
    ("rules", "name"), [(["DEFAULT"], "alice"), (["RULE:[2:$1]", "RULE:[1:$1.$0]s/TEST/X/U"], "ALICE.OTTLA.X")]
)
async def test_a_node_logs_in_with_its_key_table_as_the_name_of_the_rules(
    realm: Realm, rules: list[str], name: str
) -> None:
    async with (
        node(realm, **{"sasl.kerberos.principal.to.local.rules": rules}) as to,
        channel(to, as_alice(realm)) as peer,
    ):
        assert (await peer.request(HeartbeatRequest("g", 0, "m"))).error_code == 0
        [connection] = to.listener.connections
        assert tuple(connection.principal)[:2] == ("User", name)


@pytest.mark.parametrize("login", ['useKeyTab=true keyTab="{}" principal="alice"', "useTicketCache=true"])
async def test_a_command_logs_in_with_a_key_table_or_with_tickets(
    realm: Realm, login: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", realm.alice.keytab)  # it replaces kinit
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": f"com.sun.security.auth.module.Krb5LoginModule required {login.format(realm.alice.keytab)};",
    }
    real = RealWorld(asyncio.get_running_loop())
    async with node(realm) as to:
        command = Channel(
            real.world, HOST, to.port, "command", peer_security(real.world, properties, "client.properties")
        )
        assert (await command.request(HeartbeatRequest("g", 0, "m"))).error_code == 0
        [connection] = to.listener.connections
        assert connection.principal.name == "alice"
        command.close()
    await real.close()


async def test_a_channel_logs_in_again_before_its_session_ends(realm: Realm) -> None:
    clock = ManualClock()  # it belongs only to the channel: the node's session does not end while the machine is busy
    async with node(realm, session_ms=600_000) as to, channel(to, as_alice(realm), clock) as peer:
        await peer.request(HeartbeatRequest("g", 0, "m"))
        clock.advance_to(550_000)
        assert not peer.is_open
        await peer.request(HeartbeatRequest("g", 0, "m"))
        assert to.listener.logins is not None and to.listener.logins.counts.expired == 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sasl.kerberos.principal.to.local.rules": ["RULE:[2:$1]"]}, "due to invalid credentials with SASL mechanism"),
        ({"service": "other"}, f"Server other/{HOST}@{REALM} not found in Kerberos database"),
    ],
)
async def test_a_principal_without_a_name_and_a_service_without_a_principal_are_refused(
    realm: Realm, changes: dict[str, Any], said: str
) -> None:
    service = changes.pop("service", "kafka")
    client = gssapi.logins_of(realm.alice, service)
    async with node(realm, **changes) as to, channel(to, client) as peer:
        with pytest.raises(ChannelClosed, match=said):
            await peer.request(HeartbeatRequest("g", 0, "m"))


async def test_a_node_whose_kdc_is_down_starts_and_logs_in_when_it_is_back(realm: Realm) -> None:
    keytab = realm.kdc.add("late")
    realm.kdc.stop()
    late = gssapi.client("property", JAAS, options(realm, keyTab=keytab, principal="late"), VALUES)
    async with node(realm) as to, channel(to, late) as peer:
        with pytest.raises(ChannelClosed, match="Cannot contact any KDC"):
            await peer.request(HeartbeatRequest("g", 0, "m"))
        realm.kdc.start()
        assert (await peer.request(HeartbeatRequest("g", 0, "m"))).error_code == 0


async def test_after_handshake_v0_the_last_token_has_no_answer(realm: Realm) -> None:
    """Java's clients of that time read the next frame as the response to their first request."""
    async with node(realm) as to, shaken(to) as client:
        mine = GssapiClient(Initiating(realm.alice, "kafka", HOST))
        token = mine.answer(b"")
        for _ in range(2):
            assert token is not None
            client.send(struct.pack(">i", len(token)) + token)
            token = mine.answer(await client.frame())
        assert token is not None
        client.send(struct.pack(">i", len(token)) + token + heartbeat("m", 7))
        assert await client.correlation_ids(1) == [7]


async def test_a_token_that_was_recorded_does_not_log_in_again(realm: Realm) -> None:
    """The library decides whether the replay cache notices it; the client's choice is signed with the session's key."""
    async with node(realm) as to:
        mine, tokens = GssapiClient(Initiating(realm.alice, "kafka", HOST)), []
        async with shaken(to) as client:
            token = mine.answer(b"")
            for _ in range(3):
                assert token is not None
                tokens.append(token)
                client.send(struct.pack(">i", len(token)) + token)
                token = mine.answer(await client.frame()) if len(tokens) < 3 else None
            client.send(heartbeat("m", 7))
            assert await client.correlation_ids(1) == [7]
        async with shaken(to) as thief:
            for token in tokens:
                thief.send(struct.pack(">i", len(token)) + token)
            thief.send(heartbeat("m", 8))
            while not await closed_instead_of_a_frame(thief):
                pass
        assert to.listener.logins is not None and to.listener.logins.counts.succeeded == 1


@pytest.mark.parametrize("token", [b"", b"x", b"\x60\x82\x01", b"\x60\x28" + bytes(40), bytes(500_000)])
async def test_bytes_that_are_no_token_close_the_connection(realm: Realm, token: bytes) -> None:
    async with node(realm) as to, shaken(to) as client:
        client.send(struct.pack(">i", len(token)) + token)
        assert await client.is_closed_by_peer()
        assert to.listener.logins is not None and to.listener.logins.counts.failed == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"keyTab": "/nowhere/kafka.keytab"}, ["/nowhere/kafka.keytab", "not found"]),
        ({"keyTab": __file__}, [__file__, "Unsupported key table format version number"]),
        ({"principal": f"kafka/other@{REALM}"}, [f"No key table entry found for kafka/other@{REALM}"]),
        ({"useKeyTab": "false"}, ["has no useKeyTab=true"]),
        ({"keyTab": ""}, ["has no keyTab"]),
        ({"principal": ""}, ["has no principal"]),
        ({"serviceName": "other"}, ["serviceName=other, and sasl.kerberos.service.name is kafka"]),
    ],
)
def test_a_node_without_a_usable_key_is_refused_with_the_property_and_a_remedy(
    realm: Realm, changes: dict[str, str], said: list[str]
) -> None:
    for begin in (gssapi.mechanism, lambda *rest: gssapi.client("property", *rest)):
        with pytest.raises(ConfigError) as refused:
            begin(JAAS, options(realm, **changes), VALUES)
        assert all(words in str(refused.value) for words in said) and refused.value.what_to_try


@asynccontextmanager
async def shaken(to: TinyNode) -> AsyncIterator[RawClient]:
    """A client after SaslHandshake v0."""
    client = await to.client()
    try:
        client.send(request(17, 0, SaslHandshakeRequest(mechanism="GSSAPI")))
        await client.frame()
        yield client
    finally:
        client.close()


async def closed_instead_of_a_frame(client: RawClient) -> bool:
    try:
        await client.frame()
    except (asyncio.IncompleteReadError, ConnectionResetError):
        return True
    return False
