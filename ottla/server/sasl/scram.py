"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), the server's side. The password is never sent.

    expecting client first     -> challenge: nonce, salt, iterations
    expecting client final     -> Authenticated with the server's signature, or SaslFailure
    done

With the extension tokenauth=true (KIP-48) the name is the id of a delegation token, its HMAC is the password, and the principal is
the token's owner.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from ottla.server.principal import Principal
from ottla.server.sasl.exchange import Authenticated, SaslFailure, Slow, user
from ottla.server.sasl.scram_messages import (
    HASHES,
    ITERATIONS_MIN,
    ClientFirst,
    auth_message,
    hash_of,
    keys_of,
    read_client_final,
    read_client_first,
    salted_password,
    server_first,
    xor,
)

TOKEN_AUTH = "tokenauth"


#: Of a decoy where there is no user to be like.
SALT_BYTES = 16


class Credential(Protocol):
    """A SCRAM credential, as `controller.metadata.scram.ScramCredential` has it."""

    @property
    def salt(self) -> bytes: ...
    @property
    def stored_key(self) -> bytes: ...
    @property
    def server_key(self) -> bytes: ...
    @property
    def iterations(self) -> int: ...


class TokenCredential(NamedTuple):
    """The credential of a delegation token's login. `secrets`: the HMAC of the token's id with each key of the node."""

    owner: Principal
    expires_ms: int
    secrets: tuple[bytes, ...]


class Derived(NamedTuple):
    """A credential that the node derives from a password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class ScramUsers(NamedTuple):
    """The source of credentials."""

    #: Returns the credential of a user for a mechanism.
    credential: Callable[[str, str], Credential | None]
    #: Returns the credential of a token by its id.
    token: Callable[[str], TokenCredential | None]
    #: Returns the credential of a user that does not exist, by mechanism and name, the same at every attempt.
    decoy: Callable[[str, str], Credential]
    nonce: Callable[[], str]


class Decoy(NamedTuple):
    """The credential of a user that does not exist: whether a name is known must not be visible in the first challenge."""

    salt: bytes
    iterations: int = ITERATIONS_MIN
    stored_key: bytes = b""
    server_key: bytes = b""


def decoy(like: Credential | None, own_key: bytes, name: str) -> Decoy:
    """Returns one like the credential of another user, and with a salt that follows from its key: it is the same at all nodes.

    `own_key` is for a node without users.
    """
    key, size, iterations = (own_key, SALT_BYTES, ITERATIONS_MIN)
    if like is not None:
        key, size, iterations = like.server_key, len(like.salt), like.iterations
    return Decoy(hashlib.shake_256(b"decoy" + key + name.encode("utf-8", "replace")).digest(size), iterations)


class ScramExchange:
    def __init__(self, mechanism: str, users: ScramUsers) -> None:
        self._mechanism = mechanism
        self._digest = HASHES[mechanism]
        self._users = users
        self._first: ClientFirst | None = None
        self._server_first = ""
        self._nonce = ""
        #: Any of these will do; they have the same salt and iterations.
        self._credentials: Sequence[Credential] = ()
        self._principal = user("")
        self._expires_ms: int | None = None

    def evaluate(self, token: bytes) -> bytes | Authenticated | Slow:
        try:
            return self._begin(token) if self._first is None else self._verify(self._first, token)
        except ValueError as error:
            raise SaslFailure(str(error)) from None

    def _begin(self, token: bytes) -> bytes | Slow:
        first = self._first = read_client_first(token)
        if first.authorization_id and first.authorization_id != first.name:
            message = "Authentication failed: Client requested an authorization id that is different from username"
            raise SaslFailure(message, message)
        if first.extensions.get(TOKEN_AUTH, "").lower() == "true":
            found = self._users.token(first.name)
            if found is None:
                raise SaslFailure(f"Token Authentication failed: Invalid tokenId : {first.name}")
            self._principal = found.owner._replace(token_authenticated=True)
            self._expires_ms = found.expires_ms
            return Slow(partial(self._derive, first, found.secrets))
        self._principal = user(first.name)
        credential = self._users.credential(self._mechanism, first.name)
        return self._challenge(first, [credential or self._users.decoy(self._mechanism, first.name)])

    def _derive(self, first: ClientFirst, secrets: tuple[bytes, ...]) -> bytes:
        """The password of a delegation token is its HMAC in Base64."""
        salt = self._users.nonce().encode()
        derived = []
        for secret in secrets:
            salted = salted_password(self._digest, base64.b64encode(secret), salt, ITERATIONS_MIN)
            keys = keys_of(self._digest, salted)
            derived.append(Derived(salt, keys.stored, keys.server, ITERATIONS_MIN))
        return self._challenge(first, derived)

    def _challenge(self, first: ClientFirst, credentials: Sequence[Credential]) -> bytes:
        credential = credentials[0]
        if credential.iterations < ITERATIONS_MIN:
            raise SaslFailure(
                f"Iterations {credential.iterations} is less than the minimum {ITERATIONS_MIN} for {self._mechanism}"
            )
        self._credentials = credentials
        self._nonce = first.nonce + self._users.nonce()
        self._server_first = server_first(self._nonce, credential.salt, credential.iterations)
        return self._server_first.encode()

    def _verify(self, first: ClientFirst, token: bytes) -> Authenticated:
        final = read_client_final(token)
        if final.nonce != self._nonce:
            raise SaslFailure("Invalid client nonce in the final client message.")
        digest = self._digest
        message = auth_message(first.bare, self._server_first, final.without_proof)
        for credential in self._credentials:
            if not credential.stored_key:
                raise SaslFailure("Authentication failed: Invalid user credentials")
            signature = hmac.digest(credential.stored_key, message, digest)
            if len(final.proof) == len(signature) and hmac.compare_digest(
                hash_of(digest, xor(signature, final.proof)), credential.stored_key
            ):
                answer = b"v=" + base64.b64encode(hmac.digest(credential.server_key, message, digest))
                return Authenticated(self._principal, answer, self._expires_ms)
        raise SaslFailure("Invalid client credentials")
