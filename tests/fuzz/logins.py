"""Logins: the frames of a client before its authentication, and the tokens of each SASL mechanism, on both sides.

Invariant 48: nothing is served before a mechanism has accepted the client.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ottla.protocol.api import ApiKey, encode_request_header
from ottla.protocol.compile import encode
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.server.clock import TimerWheel
from ottla.server.config.listeners import Endpoint
from ottla.server.handlers.sasl import sasl_authenticate, sasl_handshake
from ottla.server.network.connection import Connection
from ottla.server.network.dispatch import Dispatcher
from ottla.server.network.listener import Listener
from ottla.server.network.peer_security import LoginRejected
from ottla.server.network.route import Route, RouteTable
from ottla.server.principal import ANONYMOUS
from ottla.server.sasl.client_exchange import ClientExchange, OAuthBearerClient, PlainClient, ScramClient
from ottla.server.sasl.exchange import Mechanism, SaslFailure, Slow
from ottla.server.sasl.jaas import JaasError, read_module, read_sections
from ottla.server.sasl.login import LoginRules, Logins
from ottla.server.sasl.mechanisms import PlainExchange
from ottla.server.sasl.oauthbearer import OAuthBearerExchange, UnsecuredTokens
from ottla.server.sasl.scram import HASHES, ScramExchange, ScramUsers, TokenCredential, decoy, keys_of, salted_password
from tests.fuzz.target import Target, Wrong, equal
from tests.fuzz.wire import INBOX, LIMITS, SentBytes, deliver, plain_frames

NOW_S = 1_000_000
SALT = b"salt of the user"


class Credential:
    def __init__(self, mechanism: str) -> None:
        self.salt, self.iterations = SALT, 4096
        keys = keys_of(HASHES[mechanism], salted_password(HASHES[mechanism], b"secret", SALT, 4096))
        self.stored_key, self.server_key = keys


_CREDENTIALS = {name: Credential(name) for name in HASHES}
_USERS = ScramUsers(
    lambda mechanism, user: _CREDENTIALS[mechanism] if user == "alice" else None,
    lambda token_id: TokenCredential(ANONYMOUS, 1, (b"secret",)) if token_id == "token" else None,
    lambda mechanism, user: decoy(_CREDENTIALS[mechanism], b"", user),
    lambda: "nonce",
)
MECHANISMS: dict[str, Mechanism] = {
    "PLAIN": partial(PlainExchange, {"alice": "secret"}),
    **{name: partial(ScramExchange, name, _USERS) for name in HASHES},
    "OAUTHBEARER": partial(OAuthBearerExchange, UnsecuredTokens({}, lambda: NOW_S * 1000)),
}


def _token() -> str:
    parts = (b'{"alg":"none"}', b'{"sub":"alice","exp":1000060,"iat":1000000}')
    return ".".join([*(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts), ""])


def _final(mechanism: str) -> bytes:
    """Return the last message of a client that knows the password, for the nonces above."""
    digest = HASHES[mechanism]
    first = f"n=alice,r=c,r=cnonce,s={base64.b64encode(SALT).decode()},i=4096,c=biws,r=cnonce".encode()
    key = hmac.digest(salted_password(digest, b"secret", SALT, 4096), b"Client Key", digest)
    signature = hmac.digest(hashlib.new(digest, key).digest(), first, digest)
    return b"c=biws,r=cnonce,p=" + base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True)))


#: The tokens of a successful login, by mechanism.
TOKENS: dict[str, list[bytes]] = {
    "PLAIN": [b"\0alice\0secret"],
    **{name: [b"n,,n=alice,r=c", _final(name)] for name in HASHES},
    "OAUTHBEARER": [f"n,,\1auth=Bearer {_token()}\1\1".encode()],
}


def tokens(data: bytes) -> None:
    """Give a mechanism tokens that have their length before them: each leads to a challenge, to the end, or to SaslFailure."""
    if not data:
        return
    names = sorted(MECHANISMS)
    exchange = MECHANISMS[names[data[0] % len(names)]]()
    for token in pieces(data[1:]):
        outcome = exchange.evaluate(token)
        if not isinstance(outcome, bytes | Slow):
            return


def answers(data: bytes) -> None:
    """Give a client the challenges of a server: each leads to an answer, to the end, or to LoginRejected."""
    if not data:
        return
    clients: list[ClientExchange] = [
        PlainClient("alice", "secret"),
        ScramClient("SCRAM-SHA-256", "alice", "secret", "c"),
        ScramClient("SCRAM-SHA-512", "alice", "secret", "c", token=True),
        OAuthBearerClient("token"),
    ]
    client = clients[data[0] % len(clients)]
    client.answer(b"")
    for challenge in pieces(data[1:]):
        # Another number of iterations is rejected or takes long; other tests cover it.
        if client.is_slow and b"i=4096" not in challenge:
            return
        if client.answer(challenge) is None:
            return


def pieces(data: bytes) -> Iterator[bytes]:
    pos = 0
    while len(data) - pos >= 2:
        (size,) = struct.unpack_from(">H", data, pos)
        yield data[pos + 2 : pos + 2 + size]
        pos += 2 + size


def with_lengths(parts: list[bytes]) -> bytes:
    return b"".join(struct.pack(">H", len(part)) + part for part in parts)


def token_seeds() -> Iterator[bytes]:
    for place, name in enumerate(sorted(MECHANISMS)):
        yield bytes((place,)) + with_lengths(TOKENS[name])
    yield bytes((sorted(MECHANISMS).index("SCRAM-SHA-256"),)) + with_lengths([b"n,,n=token,r=c,tokenauth=true"])
    yield bytes((0,)) + with_lengths([b"n,,\1auth=Bearer no\1\1", b"\1"])


def answer_seeds() -> Iterator[bytes]:
    yield b"\0" + with_lengths([b""])
    for place in (1, 2):
        yield bytes((place,)) + with_lengths([b"r=cs,s=AAAA,i=4096", b"v=AAAA"])
    yield b"\3" + with_lengths([b'{"status":"invalid_token"}'])


# -- Frames --------------------------------------------------------------------------------------------------------------


class Timer:
    def cancel(self) -> None:
        pass


class StoppedClock:
    def wall_ms(self) -> int:
        return NOW_S * 1000

    def mono_ms(self) -> int:
        return 0

    mono_ns = mono_ms

    def call_later(self, delay_ms: float, callback: Any) -> Timer:
        """Never call back, because no time passes."""
        return Timer()


class TurnsClock(StoppedClock):
    """A clock on which no time passes. `run` makes the calls without a delay."""

    def __init__(self) -> None:
        self._due: list[Callable[[], object]] = []

    def call_later(self, delay_ms: float, callback: Any) -> Timer:
        if not delay_ms:
            self._due.append(callback)
        return Timer()

    def run(self) -> None:
        while self._due:
            self._due.pop(0)()


class OneWorld:
    def __init__(self, clock: StoppedClock) -> None:
        self.clock = clock

    def spawn(self, work: Any, name: str) -> None:
        """Drop the work: no password is hashed here."""
        work.close()


_WORLD: Any = OneWorld(StoppedClock())


def _served(request: Any, context: Any) -> Any:
    if context.connection.principal == ANONYMOUS and context.api_key != ApiKey.API_VERSIONS:
        raise AssertionError("a client is served that is not authenticated")
    raise KafkaError(ErrorCode.INVALID_REQUEST, "fuzzed")


DISPATCHER = Dispatcher(
    RouteTable(
        [
            Route(ApiKey.API_VERSIONS, _served),
            Route(ApiKey.LIST_GROUPS, _served),
            Route(ApiKey.SASL_HANDSHAKE, sasl_handshake),
            Route(ApiKey.SASL_AUTHENTICATE, sasl_authenticate),
        ]
    ),
    _WORLD.clock,
    lambda *_: None,
)


RULES = LoginRules(MECHANISMS, 100_000, 0, {"PLAIN": 60_000})
ENDPOINT = Endpoint("EXTERNAL", "localhost", 0)


def login(data: bytes) -> None:
    """Send a client's bytes: no request is served before a mechanism has accepted the client, and each response is a whole
    frame.
    """
    answers_to(data)


def answers_to(data: bytes) -> bytes:
    """Return the responses that the client gets."""
    clock = TurnsClock()
    world: Any = OneWorld(clock)
    wheel = TimerWheel(clock)
    logins = Logins(RULES, DISPATCHER, world, wheel)
    listener = Listener(world, ENDPOINT, DISPATCHER, LIMITS, INBOX, wheel, logins=logins)
    client = Connection(listener, DISPATCHER, 0)
    logins.begin(client)
    transport = SentBytes()
    client.connection_made(transport)
    deliver(client, data, 1 << 16)
    clock.run()
    if logins.counts.succeeded == 0 and client.principal != ANONYMOUS:
        raise Wrong("a principal without a login")
    client.connection_lost(None)
    equal(len(wheel), 0, "timers left")
    sent = b"".join(transport.sent)
    _, left = plain_frames(sent)
    equal(left, 0, "bytes behind the last answer")
    return sent


def login_seeds() -> Iterator[bytes]:
    versions = _frame(ApiKey.API_VERSIONS, 3, ApiVersionsRequest("c", "1"))
    groups = _frame(ApiKey.LIST_GROUPS, 3, ListGroupsRequest())
    for name, parts in TOKENS.items():
        shake = _frame(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(name))
        authenticate = [_frame(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(part)) for part in parts]
        yield b"".join([versions, shake, *authenticate, groups, shake, *authenticate, groups])
        raw = [struct.pack(">i", len(part)) + part for part in parts]
        yield b"".join([_frame(ApiKey.SASL_HANDSHAKE, 0, SaslHandshakeRequest(name)), *raw, groups])
    yield groups
    yield _frame(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest("PLAIN")) + groups


def _frame(api_key: ApiKey, version: int, message: object) -> bytes:
    body = encode_request_header(api_key, version, 1, "c") + encode(message, version)
    return struct.pack(">i", len(body)) + body


# -- JAAS ----------------------------------------------------------------------------------------------------------------


def jaas(data: bytes) -> None:
    """A login module is the same after it was written and read again; a file of sections can be read, too."""
    text = data.decode("utf-8", "ignore")
    try:
        module = read_module(text)
    except JaasError:
        read_sections(text)
        return
    equal(read_module(module.text()), module, "a module read again")
    equal(read_module(module.text()).values, module.values, "options read again")


def jaas_seeds() -> Iterator[bytes]:
    yield b'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" user_a="b \\"c\\"";'
    yield b'KafkaServer { A required x="1"; /* y */ B optional; };'


TARGETS = [
    Target("login", login, login_seeds, bytes_max=1024, share=10),
    Target("sasl_tokens", tokens, token_seeds, (SaslFailure,), bytes_max=512, share=10),
    Target("sasl_answers", answers, answer_seeds, (LoginRejected,), bytes_max=256, share=1),
    Target("sasl_jaas", jaas, jaas_seeds, (JaasError,), bytes_max=512, share=5),
]
