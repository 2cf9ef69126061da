"""The state of a connection to a SASL listener before it is authenticated, and the end of its session (KIP-43, KIP-152,
KIP-368).

    state           a request                                  what follows
    HANDSHAKE       ApiVersions (once), SaslHandshake v0       RAW: each frame is a token of the mechanism
                    SaslHandshake v1                           TOKENS: each frame is a SaslAuthenticate
    TOKENS, RAW     the mechanism accepts                      AUTHENTICATED: the connection gets its dispatcher
    AUTHENTICATED   SaslHandshake, if the session ends         TOKENS, RAW: re-authentication as the same principal
                    the session's end (a timer)                EXPIRED
    EXPIRED         SaslHandshake                              TOKENS, RAW; any other request closes the connection
    any             one that Kafka does not expect there       FAILED: the error in the API's form if Kafka has one, and a close

A connection dispatches to this object only while it is not authenticated. Afterwards it dispatches to the listener's
dispatcher, as a connection without SASL does, so authentication takes no time of later requests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import field
from enum import Enum
from functools import partial
from typing import NoReturn, TypeAlias

from ottla.protocol.api import APIS, ApiKey, decode_request_header
from ottla.protocol.errors import ErrorCode, KafkaError, ProtocolError
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.protocol.primitives import Pieces
from ottla.protocol.slotted import frozen
from ottla.server.clock import TimerWheel
from ottla.server.network.connection import Connection
from ottla.server.network.dispatch import Dispatcher
from ottla.server.network.error_reply import error_reply
from ottla.server.network.frames import Buffer
from ottla.server.network.listener import LoginCounts
from ottla.server.network.pauses import Pause
from ottla.server.network.route import make_codec
from ottla.server.principal import Principal
from ottla.server.sasl.exchange import Authenticated, Exchange, Mechanism, SaslFailure, Slow
from ottla.server.world import World

log = logging.getLogger(__name__)

#: The arguments of `Connection.reply`.
Frame: TypeAlias = tuple[bytes, Pieces, int]
#: Makes the frame of a response to SaslAuthenticate. It is None if each frame is a token (after SaslHandshake v0).
Answer: TypeAlias = "Callable[[object], Frame] | None"

#: The time limit of a login. Kafka only has connections.max.idle.ms (ten minutes), so there sockets that stop in the middle of
#: a login pile up.
LOGIN_TIMEOUT_MS = 30_000
#: As in Kafka, a connection may re-authenticate at most once per second.
REAUTHENTICATION_INTERVAL_MS = 1_000
#: From this version of SaslHandshake on tokens are in SaslAuthenticate requests.
WITH_HEADERS = 1
#: A reason is cut to this length in the log.
REASON_SHOWN = 300


class LoginState(Enum):
    HANDSHAKE = "handshake"
    TOKENS = "tokens"
    RAW = "raw"
    AUTHENTICATED = "authenticated"
    EXPIRED = "expired"
    FAILED = "failed"


@frozen
class LoginRules:
    """The configuration of a listener."""

    mechanisms: Mapping[str, Mechanism] = field(default_factory=dict)
    request_bytes_max: int = 524_288
    failed_delay_ms: int = 100
    #: connections.max.reauth.ms by mechanism.
    session_ms_max: Mapping[str, int] = field(default_factory=dict)

    def session_ms(self, mechanism: str, expires_ms: int | None, now_ms: int) -> int | None:
        """Return the lifetime of a session, or None if it does not end."""
        limit = self.session_ms_max.get(mechanism, 0)
        if expires_ms is None:
            return limit if limit > 0 else None
        left_ms = max(0, expires_ms - now_ms)
        return min(left_ms, limit) if limit > 0 else left_ms


class Logins:
    """The rules and credentials that the connections of one SASL listener share."""

    def __init__(self, rules: LoginRules, requests: Dispatcher, world: World, wheel: TimerWheel) -> None:
        """Take in `requests` the dispatcher of authenticated connections."""
        self.rules = rules
        self.requests = requests
        self.clock = world.clock
        self.world = world
        self.wheel = wheel
        self.counts = LoginCounts()

    def begin(self, connection: Connection) -> None:
        """Let the connection dispatch to a login, from its first request on."""
        Login(self, connection)


class LoginFailed(Exception):
    """The login has failed. The reason is for the log; the frame is sent after the delay for failed logins."""

    def __init__(self, reason: str, frame: Frame | None = None) -> None:
        super().__init__(reason)
        self.frame = frame


class OtherMechanism:
    """A re-authentication with another mechanism than before. As in Kafka it fails at its first token."""

    def __init__(self, before: str, now: str) -> None:
        self._message = (
            f"SASL mechanism '{now}' requested by client is not supported for re-authentication of mechanism '{before}'"
        )

    def evaluate(self, token: bytes) -> NoReturn:
        raise SaslFailure(self._message, self._message)


class Login:
    """The login of one connection, and later its session."""

    __slots__ = (
        "_connection", "_exchange", "_knows_versions", "_logins", "_mechanism", "_principal", "_renewed_ms", "_session_ms", "_slot",
        "_state", "mono_ns", "turn",
    )  # fmt: skip

    def __init__(self, logins: Logins, connection: Connection) -> None:
        self.turn = logins.requests.turn
        self.mono_ns = logins.requests.mono_ns
        self._logins = logins
        self._connection = connection
        self._state = LoginState.HANDSHAKE
        self._knows_versions = False
        self._mechanism = ""
        self._exchange: Exchange | None = None
        #: The principal of the session that re-authenticates; None in the first login.
        self._principal: Principal | None = None
        self._session_ms: int | None = None
        self._renewed_ms = -REAUTHENTICATION_INTERVAL_MS
        self._slot = -1
        connection.login = self
        connection.on_close(self._closed)
        self._detain()

    @property
    def has_succeeded(self) -> bool:
        """Return True after the first login, also during a re-authentication."""
        return self._principal is not None

    # -- What a connection dispatches to -----------------------------------------------------------------------------

    def dispatch(self, connection: Connection, buf: Buffer, pos: int, end: int) -> None:
        """Serve a frame of a connection that is not authenticated."""
        try:
            if self._state is LoginState.RAW:
                self._evaluate(bytes(memoryview(buf)[pos:end]), None)
            elif self._state is not LoginState.FAILED:
                self._request(buf, pos, end)
        except LoginFailed as failure:
            self._fail(str(failure), failure.frame)
        except ProtocolError as error:
            self._fail(f"the request cannot be read: {error}")

    def expire(self) -> None:
        """End a login that takes too long, or a session that has expired. The timer wheel calls this."""
        if self._state is LoginState.AUTHENTICATED:
            self._state = LoginState.EXPIRED
            self._connection.dispatch_to(self, self._logins.rules.request_bytes_max)
        else:
            self._fail(f"not authenticated within {LOGIN_TIMEOUT_MS} ms")

    def renew(self, request: SaslHandshakeRequest, version: int) -> SaslHandshakeResponse:
        """Begin a re-authentication: SaslHandshake on an authenticated connection."""
        if self._state is not LoginState.AUTHENTICATED or not self._may_renew():
            return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        response = self._handshake(request, version)
        if response.error_code != ErrorCode.NONE:
            self._fail(unsupported(request))
        return response

    # -- Requests ----------------------------------------------------------------------------------------------------

    def _request(self, buf: Buffer, pos: int, end: int) -> None:
        api_key, version, correlation_id, _, body = decode_request_header(buf, pos, end)
        if api_key not in APIS:
            raise LoginFailed(f"Unknown API key {api_key}")
        api = APIS[ApiKey(api_key)]
        if self._state is LoginState.HANDSHAKE and api_key == ApiKey.API_VERSIONS and not self._knows_versions:
            # An unsupported version is answered, and the client retries with a lower one.
            route = self._logins.requests.routes.get(api_key)
            self._knows_versions = route is not None and version <= self._logins.requests.versions(route)[1]
            self._logins.requests.dispatch(self._connection, buf, pos, end)
            return
        expected = ApiKey.SASL_AUTHENTICATE if self._state is LoginState.TOKENS else ApiKey.SASL_HANDSHAKE
        if self._state is LoginState.EXPIRED and (api_key != expected or not self._may_renew()):
            self._logins.counts.expired += 1
            self._connection.close("its session has expired")
            return
        if self._state is LoginState.HANDSHAKE and api_key != expected:
            # Bodies of other APIs are not even decoded before authentication.
            raise LoginFailed(f"Unexpected Kafka request of type {api.name} during SASL handshake.")
        if not api.min_version <= version <= api.max_version:
            raise LoginFailed(f"Version {version} is not supported for apiKey {api.name}")
        request, _ = make_codec(api_key, version).decode(buf, body, end)
        answer = partial(framed, api_key, version, correlation_id)
        if api_key != expected:
            reason = f"Unexpected Kafka request of type {api.name} during SASL authentication."
            error = error_reply(api_key, version, request, KafkaError(ErrorCode.ILLEGAL_SASL_STATE, reason))
            raise LoginFailed(reason, None if error is None else answer(error))
        if api_key == ApiKey.SASL_AUTHENTICATE:
            self._evaluate(bytes(request.auth_bytes), answer)
            return
        response = self._handshake(request, version)
        if response.error_code != ErrorCode.NONE:
            raise LoginFailed(unsupported(request), answer(response))
        self._connection.reply(*answer(response))

    def _handshake(self, request: SaslHandshakeRequest, version: int) -> SaslHandshakeResponse:
        mechanisms, name = self._logins.rules.mechanisms, request.mechanism
        if name not in mechanisms:
            return SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=list(mechanisms))
        if self._principal is None:
            self._mechanism = name
        else:
            self._renewed_ms = self._logins.clock.mono_ms()
            self._detain()
        same = name == self._mechanism
        self._exchange = mechanisms[name]() if same else OtherMechanism(self._mechanism, name)
        self._state = LoginState.TOKENS if version >= WITH_HEADERS else LoginState.RAW
        return SaslHandshakeResponse(mechanisms=list(mechanisms))

    def _evaluate(self, token: bytes, answer: Answer) -> None:
        assert self._exchange is not None, "set by the handshake"
        try:
            outcome = self._exchange.evaluate(token)
            if isinstance(outcome, Slow):
                work = self._finish_later(self._connection.pause(), outcome, answer)
                self._logins.world.spawn(work, f"login {self._connection.id}")
            else:
                self._finish(outcome, answer)
        except SaslFailure as failure:
            raise LoginFailed(str(failure), self._rejection(failure, answer)) from None

    async def _finish_later(self, pause: Pause, slow: Slow, answer: Answer) -> None:
        """Finish a slow step on a worker. Meanwhile the connection does not read. If the step fails, it does not read again."""
        connection = self._connection
        try:
            outcome = await self._logins.world.workers.run(slow.step)
            if connection.closed or self._state is LoginState.FAILED:
                return
            self._finish(outcome, answer)
        except SaslFailure as failure:
            self._fail(str(failure), self._rejection(failure, answer))
            return
        connection.flush()
        pause.end()

    def _finish(self, outcome: bytes | Authenticated, answer: Answer) -> None:
        if isinstance(outcome, Authenticated):
            self._succeed(outcome)
        token = outcome.token if isinstance(outcome, Authenticated) else outcome
        if answer is not None:
            lifetime_ms = self._session_ms or 0 if self._state is LoginState.AUTHENTICATED else 0
            response = SaslAuthenticateResponse(auth_bytes=token or b"", session_lifetime_ms=lifetime_ms)
            self._connection.reply(*answer(response))
        elif token is not None:
            self._connection.reply(len(token).to_bytes(4, "big"), [token], len(token) + 4)

    def _rejection(self, failure: SaslFailure, answer: Answer) -> Frame | None:
        message = failure.for_client or (
            f"Authentication failed during {self._what} due to invalid credentials with SASL mechanism {self._mechanism}"
        )
        response = SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, message)
        return None if answer is None else answer(response)

    # -- The end of a login ------------------------------------------------------------------------------------------

    def _succeed(self, outcome: Authenticated) -> None:
        logins, connection, before = self._logins, self._connection, self._principal
        if before is None:
            logins.counts.succeeded += 1
        elif before[:2] != outcome.principal[:2]:
            message = (
                f"Cannot change principals during re-authentication from {before.type}.{before.name}: "
                + ".".join(outcome.principal[:2])
            )
            raise SaslFailure(message, message)
        else:
            logins.counts.reauthenticated += 1
        self._principal = connection.principal = outcome.principal
        self._exchange = None
        self._state = LoginState.AUTHENTICATED
        self._session_ms = logins.rules.session_ms(self._mechanism, outcome.expires_ms, logins.clock.wall_ms())
        self._arm(self._session_ms)
        connection.dispatch_to(logins.requests, connection.listener.limits.request_bytes_max)

    def _fail(self, reason: str, frame: Frame | None = None) -> None:
        """Respond late, as Kafka does, so that a client cannot try many passwords one after the other over one connection."""
        logins, connection = self._logins, self._connection
        if self._principal is None:
            logins.counts.failed += 1
        else:
            logins.counts.reauthentication_failed += 1
        self._state, self._exchange = LoginState.FAILED, None
        self._arm(None)
        # This is Kafka's line, by which operators and their tools recognise a failed login.
        log.info(
            "[%s] Failed %s with /%s (channelId=%s) (%s)",
            connection.listener_name,
            self._what,
            connection.peer_host,
            connection.id,
            printable(reason),
        )
        connection.pause()  # it never reads again

        def end() -> None:
            if not connection.closed:
                if frame is not None:
                    connection.reply(*frame)
                connection.shut()

        timer = logins.clock.call_later(logins.rules.failed_delay_ms, end)
        connection.on_close(timer.cancel)

    @property
    def _what(self) -> str:
        return "authentication" if self._principal is None else "re-authentication"

    def _may_renew(self) -> bool:
        elapsed_ms = self._logins.clock.mono_ms() - self._renewed_ms
        return self._session_ms is not None and elapsed_ms >= REAUTHENTICATION_INTERVAL_MS

    def _detain(self) -> None:
        """Let the connection dispatch here, until it is authenticated or its time is over."""
        self._connection.dispatch_to(self, self._logins.rules.request_bytes_max)
        self._arm(LOGIN_TIMEOUT_MS)

    def _arm(self, delay_ms: int | None) -> None:
        self._logins.wheel.remove(self, self._slot)
        if delay_ms is not None:
            self._slot = self._logins.wheel.add(self, delay_ms)

    def _closed(self) -> None:
        self._arm(None)
        self._state, self._exchange = LoginState.FAILED, None
        # Connection and login refer to each other.
        self._connection.login = None
        self._connection.dispatch_to(self._logins.requests, 0)


def framed(api_key: int, version: int, correlation_id: int, response: object) -> Frame:
    codec = make_codec(api_key, version)
    parts: Pieces = []
    codec.encode(response, parts)
    nbytes = codec.head_bytes + sum(map(len, parts))
    return codec.pack_head(nbytes, correlation_id), parts, nbytes + 4


def unsupported(request: SaslHandshakeRequest) -> str:
    return f"Unsupported SASL mechanism {request.mechanism}"


def printable(reason: str) -> str:
    """Return the reason for the log. Its names come from the client, so they must be bounded, and must not forge log lines."""
    return "".join(char if char.isprintable() else "?" for char in reason[:REASON_SHOWN])
