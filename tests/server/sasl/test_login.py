"""The login of a connection, frame by frame: what each state accepts, and the resources of a client that never succeeds
(invariant 48).
"""

from __future__ import annotations

import asyncio
import gc
import logging
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest

from ottla.protocol.api import ApiKey, response_header_version
from ottla.protocol.compile import decoder
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.heartbeat import HeartbeatResponse
from ottla.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.protocol.releases import RELEASES, Advertised
from ottla.server.handlers.sasl import sasl_authenticate, sasl_handshake
from ottla.server.network.frames import LARGE_FRAME_BYTES
from ottla.server.network.listener import LoginCounts
from ottla.server.network.route import Route
from ottla.server.principal import Principal
from ottla.server.sasl import login
from ottla.server.sasl.exchange import Authenticated
from ottla.server.sasl.login import LoginRules
from ottla.server.sasl.mechanisms import PlainExchange
from tests.server.tiny_node import (
    ANSWER_TIMEOUT_S,
    HEARTBEAT,
    LIST_GROUPS,
    RawClient,
    TinyNode,
    heartbeat,
    request,
    tiny_node,
    until,
)

HANDSHAKE, AUTHENTICATE, API_VERSIONS = 17, 36, 18
ALICE, BOB = b"\0alice\0secret", b"\0bob\0hidden"
PASSWORDS = {"alice": "secret", "bob": "hidden"}
SHAKE = request(HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))


class TwoSteps:
    """A mechanism with a challenge, whose credential expires."""

    def __init__(self, expires_ms: int | None) -> None:
        self._expires_ms = expires_ms
        self._asked = False

    def evaluate(self, token: bytes) -> bytes | Authenticated:
        if not self._asked:
            self._asked = True
            return b"challenge to " + token
        return Authenticated(Principal("User", token.decode()), b"welcome", self._expires_ms)


def rules(**changes: Any) -> LoginRules:
    mechanisms = {"PLAIN": partial(PlainExchange, PASSWORDS), "TWO": partial(TwoSteps, None)}
    return LoginRules(**{"mechanisms": mechanisms, "failed_delay_ms": 0} | changes)


@asynccontextmanager
async def node(**changes: Any) -> AsyncIterator[TinyNode]:
    routes = (Route(HANDSHAKE, sasl_handshake), Route(AUTHENTICATE, sasl_authenticate))
    async with tiny_node(*routes, login_rules=rules(**changes)) as node:
        yield node


def counts(node: TinyNode) -> LoginCounts:
    assert node.listener.logins is not None
    return node.listener.logins.counts


async def answer(client: RawClient, response: type[Any], api_key: int, version: int) -> Any:
    frame = await client.frame()
    return decoder(response, version)(frame, 5 if response_header_version(api_key, version) else 4, len(frame))[0]


async def handshake(client: RawClient, mechanism: str = "PLAIN", version: int = 1) -> SaslHandshakeResponse:
    client.send(request(HANDSHAKE, version, SaslHandshakeRequest(mechanism=mechanism)))
    return await answer(client, SaslHandshakeResponse, HANDSHAKE, version)


async def authenticate(client: RawClient, token: bytes = ALICE, version: int = 2) -> SaslAuthenticateResponse:
    client.send(request(AUTHENTICATE, version, SaslAuthenticateRequest(auth_bytes=token)))
    return await answer(client, SaslAuthenticateResponse, AUTHENTICATE, version)


async def is_served(client: RawClient) -> bool:
    client.send(heartbeat())
    response: HeartbeatResponse = await answer(client, HeartbeatResponse, HEARTBEAT, 4)
    return response.error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a_client_asks_for_versions_and_mechanism_and_is_served_after_its_token(version: int) -> None:
    async with node() as tiny:
        client = await tiny.client()
        client.send(request(API_VERSIONS, 3, ApiVersionsRequest("c", "1")))
        assert (await answer(client, ApiVersionsResponse, API_VERSIONS, 3)).error_code == 0
        shaken = await handshake(client)
        assert (shaken.error_code, shaken.mechanisms) == (0, ["PLAIN", "TWO"])
        done = await authenticate(client, version=version)
        assert (done.error_code, done.auth_bytes, done.session_lifetime_ms) == (0, b"", 0)
        assert await is_served(client)
        [connection] = tiny.listener.connections
        assert connection.principal == Principal("User", "alice")
        assert connection.request_bytes_max == tiny.limits.request_bytes_max
        assert counts(tiny) == LoginCounts(succeeded=1)


async def test_after_handshake_v0_tokens_are_bare_frames() -> None:
    async with node() as tiny:
        client = await tiny.client()
        assert (await handshake(client, "TWO", version=0)).error_code == 0
        client.send(b"\0\0\0\1a")
        assert await client.frame() == b"challenge to a"
        client.send(b"\0\0\0\5alice")
        assert await client.frame() == b"welcome"
        assert await is_served(client)


async def test_everything_in_one_packet_is_answered_in_order() -> None:
    async with node() as tiny:
        client = await tiny.client()
        shake = request(HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"), 1)
        token = request(AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=ALICE), 2)
        client.send(shake + token + heartbeat(correlation_id=3))
        assert await client.correlation_ids(3) == [1, 2, 3]


async def test_a_wrong_password_is_answered_after_the_delay_and_closes() -> None:
    async with node(failed_delay_ms=300) as tiny:
        client = await tiny.client()
        await handshake(client)
        began = asyncio.get_running_loop().time()
        failed = await authenticate(client, b"\0alice\0wrong")
        assert asyncio.get_running_loop().time() - began >= 0.3
        assert failed.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert failed.error_message == "Authentication failed: Invalid username or password"
        assert await client.is_closed_by_peer()
        assert counts(tiny) == LoginCounts(failed=1)


async def test_an_unknown_mechanism_is_answered_with_those_that_there_are() -> None:
    async with node() as tiny:
        client = await tiny.client()
        shaken = await handshake(client, "NTLM")
        assert shaken.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM and shaken.mechanisms == ["PLAIN", "TWO"]
        assert await client.is_closed_by_peer()


@pytest.mark.parametrize(
    "frame",
    [
        heartbeat(),
        request(AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=ALICE)),
        SHAKE.replace(b"\0\x11\0\1", b"\0\x11\0\7"),
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        b"\0\0\0\3abc",
        b"\0\0\0\0",
        struct.pack(">i", 2**31 - 1) + b"x" * 100,
        struct.pack(">i", 524_289) + b"x" * 100,
        struct.pack(">i", -1),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        struct.pack(">i", len(SHAKE) - 7) + SHAKE[4:-3],
    ],
    ids=["other API", "token first", "version", "unknown API", "short", "empty", "2 GiB", "too large", "negative", "TLS", "cut"],
)  # fmt: skip
async def test_what_kafka_does_not_expect_before_authentication_closes_the_connection(frame: bytes) -> None:
    async with node() as tiny:
        client = await tiny.client()
        client.send(frame)
        assert await client.is_closed_by_peer()
        assert not tiny.heartbeats.members
        await until(lambda: not tiny.listener.connections)


async def test_versions_can_be_asked_for_once() -> None:
    async with node() as tiny:
        client = await tiny.client()
        client.send(request(API_VERSIONS, 3, ApiVersionsRequest("c", "1")) * 2)
        await client.frame()
        assert await client.is_closed_by_peer()


async def test_the_versions_are_the_advertised_releases_before_a_login_and_after_it() -> None:
    init = Route(ApiKey.INIT_PRODUCER_ID, lambda request, context: None)
    routes = (Route(HANDSHAKE, sasl_handshake), Route(AUTHENTICATE, sasl_authenticate), init)
    advertised = Advertised(RELEASES["4.3.1"], unstable_apis=True)
    async with tiny_node(*routes, login_rules=rules(), advertised=advertised) as tiny:
        client = await tiny.client()
        found = []
        for log_in in (True, False):
            client.send(request(API_VERSIONS, 5, ApiVersionsRequest("c", "1")))
            refused = await answer(client, ApiVersionsResponse, API_VERSIONS, 0)
            assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
            client.send(request(API_VERSIONS, 4, ApiVersionsRequest("c", "1")))
            listed = (await answer(client, ApiVersionsResponse, API_VERSIONS, 4)).api_keys
            found.append({row.api_key: row.max_version for row in listed})
            if log_in:
                await handshake(client)
                assert (await authenticate(client)).error_code == 0
        assert found[0] == found[1]
        assert (found[0][API_VERSIONS], found[0][ApiKey.INIT_PRODUCER_ID]) == (4, 6)


async def test_another_request_in_place_of_a_token_is_answered_illegal_sasl_state() -> None:
    async with node() as tiny:
        client = await tiny.client()
        await handshake(client)
        client.send(request(LIST_GROUPS, 3, ListGroupsRequest()))
        refused = await answer(client, ListGroupsResponse, LIST_GROUPS, 3)
        assert refused.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await client.is_closed_by_peer()


async def test_nothing_that_follows_a_failed_login_is_served() -> None:
    async with node(failed_delay_ms=50) as tiny:
        client = await tiny.client()
        await handshake(client)
        client.send(request(AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=b"")) + heartbeat())
        assert (await answer(client, SaslAuthenticateResponse, AUTHENTICATE, 2)).error_code == 58
        assert await client.is_closed_by_peer()
        assert not tiny.heartbeats.members


async def test_a_client_that_is_authenticated_already_cannot_begin_again_where_sessions_do_not_end() -> None:
    async with node() as tiny:
        client = await tiny.client()
        await handshake(client)
        await authenticate(client)
        assert (await handshake(client)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await authenticate(client)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await is_served(client)
    async with tiny_node(Route(HANDSHAKE, sasl_handshake)) as tiny:
        assert (await handshake(await tiny.client())).error_code == ErrorCode.ILLEGAL_SASL_STATE


async def test_a_session_is_renewed_before_its_end_and_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert login.REAUTHENTICATION_INTERVAL_MS == 1_000
    monkeypatch.setattr(login, "REAUTHENTICATION_INTERVAL_MS", 600_000)  # longer than any test takes
    async with node(session_ms_max={"PLAIN": 60_000}) as tiny:
        client = await tiny.client()
        await handshake(client)
        assert (await authenticate(client)).session_lifetime_ms == 60_000
        assert (await handshake(client)).error_code == 0
        assert (await authenticate(client)).session_lifetime_ms == 60_000
        assert await is_served(client)
        # Not twice in a second, as in Kafka.
        assert (await handshake(client)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert counts(tiny) == LoginCounts(succeeded=1, reauthenticated=1)
    async with node(session_ms_max={"PLAIN": 1}) as tiny:
        client = await tiny.client()
        await handshake(client)
        await authenticate(client)
        [connection] = tiny.listener.connections
        await until(lambda: connection.request_bytes_max == 524_288)  # the session has ended
        assert (await handshake(client)).error_code == 0
        assert (await authenticate(client)).error_code == 0


async def test_after_the_end_of_its_session_a_client_is_not_served() -> None:
    async with node(session_ms_max={"PLAIN": 1}) as tiny:
        client = await tiny.client()
        await handshake(client)
        await authenticate(client)
        [connection] = tiny.listener.connections
        await until(lambda: connection.request_bytes_max == 524_288)
        client.send(heartbeat())
        assert await client.is_closed_by_peer()
        assert not tiny.heartbeats.members and counts(tiny).expired == 1


@pytest.mark.parametrize(
    ("mechanism", "token", "message"),
    [
        ("PLAIN", BOB, "Cannot change principals during re-authentication from User.alice: User.bob"),
        ("PLAIN", b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        ("TWO", b"x", "SASL mechanism 'TWO' requested by client is not supported for re-authentication of mechanism 'PLAIN'"),
    ],
)  # fmt: skip
async def test_a_session_cannot_become_anothers(mechanism: str, token: bytes, message: str) -> None:
    async with node(session_ms_max={"PLAIN": 60_000}) as tiny:
        client = await tiny.client()
        await handshake(client)
        await authenticate(client)
        assert (await handshake(client, mechanism)).error_code == 0
        assert (await authenticate(client, token)).error_message == message
        assert await client.is_closed_by_peer()
        assert counts(tiny) == LoginCounts(succeeded=1, reauthentication_failed=1)


def test_the_shorter_of_credential_and_configuration_ends_a_session() -> None:
    limited = rules(session_ms_max={"TWO": 5_000})
    assert limited.session_ms("TWO", None, 0) == 5_000
    assert limited.session_ms("TWO", 3_000, 1_000) == 2_000
    assert limited.session_ms("TWO", 30_000, 1_000) == 5_000
    assert limited.session_ms("PLAIN", 3_000, 1_000) == 2_000
    assert limited.session_ms("PLAIN", 500, 1_000) == 0
    assert limited.session_ms("PLAIN", None, 0) is None


async def test_a_login_that_does_not_go_on_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "LOGIN_TIMEOUT_MS", 20)
    async with node() as tiny:
        silent, stopped = await tiny.client(), await tiny.client()
        stopped.send(SHAKE)
        assert await silent.is_closed_by_peer()
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            with suppress(ConnectionResetError):
                await stopped.reader.read()  # its response too, unless that took longer than the whole login may
        assert counts(tiny).failed == 2


async def test_the_log_has_one_line_for_a_failed_login_and_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        async with node() as tiny:
            for token in (b"\0alice\0planted-1", b"planted-2", b"\0\0planted-3", b"a\0b\0c\0planted-4"):
                client = await tiny.client()
                await handshake(client)
                await authenticate(client, token)
                assert await client.is_closed_by_peer()
            lines = [r.getMessage() for r in caplog.records if r.name.startswith("ottla")]
    assert len([line for line in lines if "Failed authentication with /127.0.0.1" in line]) == 4
    assert not [line for line in lines if "planted" in line]


async def test_a_name_cannot_forge_a_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        async with node() as tiny:
            client = await tiny.client()
            await handshake(client, "X\n[forged] line" + "y" * 5_000)
            assert await client.is_closed_by_peer()
    [line] = [r.getMessage() for r in caplog.records if "Failed authentication" in r.getMessage()]
    assert "\n" not in line and len(line) < 500 + login.REASON_SHOWN


async def test_peers_without_a_login_take_nothing_of_the_memory_for_requests_of_clients() -> None:
    """Some two hundred connections that declared 512 KiB each kept a client's request waiting for 29 seconds."""
    token = request(AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=b"x" * 500_000))
    large = request(LIST_GROUPS, 4, ListGroupsRequest(states_filter=["x" * 20_000] * 5))
    assert len(large) > LARGE_FRAME_BYTES
    async with node() as tiny:
        memory = tiny.listener.inbox.requests
        memory.limit = len(large)
        peers = [await tiny.client() for _ in range(3)]
        for peer in peers:
            await handshake(peer)
            peer.send(token[:100_000])
        await until(
            lambda: sum(each.received_bytes_kept >= 100_000 for each in tiny.listener.connections) == len(peers)
        )
        assert memory.taken == 0
        client = await tiny.client()
        await handshake(client)
        await authenticate(client)
        client.send(large[:-1])
        await until(lambda: memory.taken == len(large))
        client.send(large[-1:])
        await client.frame()
        assert (memory.taken, memory.waits) == (0, 0)


async def test_a_thousand_half_logins_leave_nothing_behind() -> None:
    async with node() as tiny:
        clients = [await tiny.client() for _ in range(1_000)]
        for client in clients:
            client.send(request(HANDSHAKE, 1, SaslHandshakeRequest(mechanism="TWO")))
            client.send(request(AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=b"x" * 1_000))[:500])
        await until(lambda: len(tiny.listener.connections) == 1_000)
        for client in clients:
            await client.frame()
        assert all(connection.received_bytes_kept <= 1_100 for connection in tiny.listener.connections)
        late = await tiny.client()
        await handshake(late)
        await authenticate(late)
        assert await is_served(late)
        for client in (*clients, late):
            client.close()
        await until(lambda: not tiny.listener.connections)
        assert tiny.listener.logins is not None
        assert len(tiny.listener.logins.wheel) == 0
        gc.collect()
        assert not [each for each in gc.get_objects() if type(each) is login.Login]  # a dead proxy has no class
