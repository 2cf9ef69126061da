"""The client's side of a SASL login, without I/O: the mechanisms, which answer challenges, and the steps of the login.

SCRAM verifies the server, too. Nodes, commands, the Spark connector and tests log in with the same steps.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable
from typing import Protocol

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.server.network.peer_security import LoginRejected
from ottla.server.network.wire import Ask, Steps, Work
from ottla.server.sasl.scram import (
    HASHES,
    ITERATIONS_MIN,
    TOKEN_AUTH,
    auth_message,
    client_key,
    escaped_name,
    hash_of,
    keys_of,
    read_server_final,
    read_server_first,
    salted_password,
    xor,
)

#: From this version on tokens are sent in SaslAuthenticate requests.
HANDSHAKE_VERSION = 1
#: The most iterations. RFC 7677 has no limit, and Kafka's clients compute what the server requests, even 2^31 iterations, which
#: take half an hour.
ITERATIONS_ACCEPTED_MAX = 1_000_000
NO_CHANNEL_BINDING = base64.b64encode(b"n,,").decode()


class ClientExchange(Protocol):
    """The client's side of one login."""

    @property
    def is_slow(self) -> bool:
        """Return True if the next answer takes milliseconds, as the hash of a password for SCRAM: then a worker computes it."""

    def answer(self, challenge: bytes) -> bytes | None:
        """Return the token for a challenge (the first challenge is empty), or None when nothing is left to send.

        Raises:
            LoginRejected: this is not the expected server.
        """


class PlainClient:
    is_slow = False

    def __init__(self, user: str, password: str) -> None:
        self._token: bytes | None = f"\0{user}\0{password}".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        token, self._token = self._token, None
        return token


class ScramClient:
    """SCRAM (RFC 5802). scram.py has the server's side."""

    def __init__(self, mechanism: str, user: str, password: str, nonce: str, *, token: bool = False) -> None:
        """Take in `token` whether the user is the id of a delegation token, and the password its HMAC."""
        self._mechanism = mechanism
        self._digest = HASHES[mechanism]
        self._password = password.encode()
        self._nonce = nonce
        self._first = f"n={escaped_name(user)},r={nonce}" + (f",{TOKEN_AUTH}=true" if token else "")
        self._signature = b""
        self._step: Callable[[bytes], bytes | None] = self._begin

    @property
    def is_slow(self) -> bool:
        return self._step == self._prove

    def answer(self, challenge: bytes) -> bytes | None:
        try:
            return self._step(challenge)
        except ValueError as error:
            raise LoginRejected(str(error)) from None

    def _begin(self, challenge: bytes) -> bytes:
        self._step = self._prove
        return b"n,," + self._first.encode()

    def _prove(self, challenge: bytes) -> bytes:
        server = read_server_first(challenge)
        if not server.nonce.startswith(self._nonce) or server.nonce == self._nonce:
            raise LoginRejected("Invalid server nonce: does not start with client nonce")
        if not ITERATIONS_MIN <= server.iterations <= ITERATIONS_ACCEPTED_MAX:
            raise LoginRejected(
                f"Requested iterations {server.iterations} is not between {ITERATIONS_MIN} and {ITERATIONS_ACCEPTED_MAX} for "
                f"{self._mechanism}"
            )
        digest = self._digest
        salted = salted_password(digest, self._password, server.salt, server.iterations)
        key = client_key(digest, salted)
        without_proof = f"c={NO_CHANNEL_BINDING},r={server.nonce}"
        message = auth_message(self._first, challenge.decode(), without_proof)
        proof = xor(key, hmac.digest(hash_of(digest, key), message, digest))
        self._signature = hmac.digest(keys_of(digest, salted).server, message, digest)
        self._step = self._verify
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _verify(self, challenge: bytes) -> None:
        server = read_server_final(challenge)
        if server.error:
            raise LoginRejected(f"{self._mechanism} failed with error: {server.error}")
        if not hmac.compare_digest(server.signature, self._signature):
            raise LoginRejected("Invalid server signature in server final message")


class OAuthBearerClient:
    is_slow = False

    def __init__(self, token: str) -> None:
        self._token = token

    def answer(self, challenge: bytes) -> bytes | None:
        if self._token:
            token, self._token = self._token, ""
            return f"n,,\x01auth=Bearer {token}\x01\x01".encode()
        # The server has rejected the token. It sends the reason only after this byte (RFC 7628).
        return b"\x01" if challenge else None


def choose_mechanism(mechanism: str) -> Steps[None]:
    """Begin a login: the listener must have the mechanism enabled.

    Raises:
        LoginRejected: it has only other mechanisms.
    """
    response: SaslHandshakeResponse = yield Ask(SaslHandshakeRequest(mechanism=mechanism), HANDSHAKE_VERSION)
    if response.error_code != ErrorCode.NONE:
        raise LoginRejected(
            f"{ErrorCode(response.error_code).name}, it enables {', '.join(response.mechanisms) or 'no mechanism'}"
        )


def authenticate(exchange: ClientExchange, version: int) -> Steps[int]:
    """Log in with the chosen mechanism. The result is the lifetime of the session in milliseconds, or 0 if it does not end.

    Raises:
        LoginRejected: one side does not accept the other.
    """
    challenge, lifetime_ms = b"", 0
    while True:
        token = (yield Work(exchange.answer, challenge)) if exchange.is_slow else exchange.answer(challenge)
        if token is None:
            return lifetime_ms
        response: SaslAuthenticateResponse = yield Ask(SaslAuthenticateRequest(auth_bytes=token), version)
        if response.error_code != ErrorCode.NONE:
            raise LoginRejected(response.error_message or ErrorCode(response.error_code).name)
        lifetime_ms, challenge = response.session_lifetime_ms, bytes(response.auth_bytes)
