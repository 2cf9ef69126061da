"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): messages and keys, for server and client, and the server's side.

    client first   n,[a=authzid],[m=...,]n=user,r=nonce[,extensions]      expected first
    server first   [m=...,]r=nonce,s=salt,i=iterations[,extensions]       the challenge
    client final   c=channel binding,r=nonce[,extensions],p=proof         expected then
    server final   e=error | v=signature                                  Authenticated with the signature, or SaslFailure

The password is never sent. Like Kafka, this supports no channel binding, and names are ASCII.

With the extension tokenauth=true (KIP-48) the name is the id of a delegation token, its HMAC is the password, and the principal is
the token's owner.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from ottla.server.principal import Principal
from ottla.server.sasl.exchange import Authenticated, SaslFailure, Slow, user

#: A mechanism's name -> its hash.
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
#: The number of a mechanism in UserScramCredentialRecord.
NUMBERS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
ITERATIONS_MIN = 4096
#: Kafka's limit when a credential is written (ScramMechanism.MAX_ITERATIONS).
ITERATIONS_MAX = 16_384
#: The extension for delegation tokens.
TOKEN_AUTH = "tokenauth"

_VALUE = r"[\x01-\x2b\x2d-\x7f]+"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_BASE64 = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_RESERVED = f"(?:m={_VALUE},)?"
_EXTENSIONS = f"(?:,[A-Za-z]+={_VALUE})*"
_CLIENT_FIRST = re.compile(
    f"n,(?:a=(?P<authzid>{_NAME}))?,(?P<bare>{_RESERVED}n=(?P<name>{_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))"
)
_SERVER_FIRST = re.compile(
    f"{_RESERVED}r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,10}}){_EXTENSIONS}"
)
_CLIENT_FINAL = re.compile(
    f"(?P<without_proof>c={_BASE64},r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL = re.compile(f"(?:e=(?P<error>{_VALUE})|v=(?P<signature>{_BASE64}){_EXTENSIONS})")


class ClientFirst(NamedTuple):
    bare: str
    name: str
    nonce: str
    authorization_id: str
    extensions: dict[str, str]


class ServerFirst(NamedTuple):
    nonce: str
    salt: bytes
    iterations: int


class ClientFinal(NamedTuple):
    without_proof: str
    nonce: str
    proof: bytes


class ServerFinal(NamedTuple):
    """The last message of the server. Either `error` or `signature` is set."""

    error: str
    signature: bytes


def read_client_first(token: bytes) -> ClientFirst:
    match = _match(_CLIENT_FIRST, token, "client first")
    pairs = (pair.partition("=") for pair in match["extensions"].split(",")[1:])
    return ClientFirst(
        match["bare"],
        plain_name(match["name"]),
        match["nonce"],
        plain_name(match["authzid"] or ""),
        {key: value for key, _, value in pairs},
    )


def read_server_first(token: bytes) -> ServerFirst:
    match = _match(_SERVER_FIRST, token, "server first")
    return ServerFirst(match["nonce"], base64.b64decode(match["salt"]), int(match["iterations"]))


def read_client_final(token: bytes) -> ClientFinal:
    match = _match(_CLIENT_FINAL, token, "client final")
    return ClientFinal(match["without_proof"], match["nonce"], base64.b64decode(match["proof"]))


def read_server_final(token: bytes) -> ServerFinal:
    match = _match(_SERVER_FINAL, token, "server final")
    return ServerFinal(match["error"] or "", base64.b64decode(match["signature"] or ""))


def _match(pattern: re.Pattern[str], token: bytes, what: str) -> re.Match[str]:
    match = pattern.fullmatch(token.decode("utf-8", "replace"))
    if match is None:
        # The error does not contain the message, because a client may send a password by mistake.
        raise ValueError(f"Invalid SCRAM {what} message format")
    return match


def plain_name(escaped: str) -> str:
    """Return the name with =3D and =2C decoded to '=' and ','."""
    return escaped.replace("=2C", ",").replace("=3D", "=")


def escaped_name(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def server_first(nonce: str, salt: bytes, iterations: int) -> str:
    return f"r={nonce},s={base64.b64encode(salt).decode()},i={iterations}"


class ScramKeys(NamedTuple):
    """The keys that a server stores instead of a password."""

    stored: bytes
    server: bytes


def salted_password(digest: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    """Return the password by PBKDF2. 16,384 iterations take about 10 ms: it runs on a worker, where OpenSSL releases the GIL."""
    return hashlib.pbkdf2_hmac(digest, password, salt, iterations)


def client_key(digest: str, salted: bytes) -> bytes:
    return hmac.digest(salted, b"Client Key", digest)


def keys_of(digest: str, salted: bytes) -> ScramKeys:
    return ScramKeys(hash_of(digest, client_key(digest, salted)), hmac.digest(salted, b"Server Key", digest))


def hash_of(digest: str, data: bytes) -> bytes:
    return hashlib.new(digest, data).digest()


def xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def auth_message(client_first_bare: str, server_first: str, client_final_without_proof: str) -> bytes:
    return f"{client_first_bare},{server_first},{client_final_without_proof}".encode()


#: The length of a decoy's salt if there is no other user to imitate.
SALT_BYTES = 16


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """The credential that a server has instead of a password: from the metadata, derived from a password, or, without keys, made up for a
    user that does not exist.

    The first challenge must not show whether a name is known. The keys are secrets and must never be printed.
    """

    salt: bytes = field(repr=False)
    stored_key: bytes = field(default=b"", repr=False)
    server_key: bytes = field(default=b"", repr=False)
    iterations: int = ITERATIONS_MIN


class TokenCredential(NamedTuple):
    """The credential for a login with a delegation token. `secrets` has the HMAC of the token's id with each key of the node."""

    owner: Principal
    expires_ms: int
    secrets: tuple[bytes, ...]


class ScramUsers(NamedTuple):
    """The source of credentials."""

    #: Returns the credential of a user for a mechanism.
    credential: Callable[[str, str], ScramCredential | None]
    #: Returns the credential of a token by its id.
    token: Callable[[str], TokenCredential | None]
    #: Returns the decoy for a user that does not exist, by mechanism and name. It is the same at every attempt.
    decoy: Callable[[str, str], ScramCredential]
    nonce: Callable[[], str]


def decoy(like: ScramCredential | None, own_key: bytes, name: str) -> ScramCredential:
    """Return a decoy that looks like the credential of another user.

    Its salt follows from that user's key, so that it is the same at all nodes. `own_key` is for a node without users.
    """
    key, size, iterations = (own_key, SALT_BYTES, ITERATIONS_MIN)
    if like is not None:
        key, size, iterations = like.server_key, len(like.salt), like.iterations
    salt = hashlib.shake_256(b"decoy" + key + name.encode("utf-8", "replace")).digest(size)
    return ScramCredential(salt, iterations=iterations)


class ScramExchange:
    def __init__(self, mechanism: str, users: ScramUsers) -> None:
        self._mechanism = mechanism
        self._digest = HASHES[mechanism]
        self._users = users
        self._first: ClientFirst | None = None
        self._server_first = ""
        self._nonce = ""
        #: Any of these credentials will do: they have the same salt and iterations.
        self._credentials: Sequence[ScramCredential] = ()
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
        """Derive keys for a login by a delegation token, whose password is its HMAC in Base64."""
        salt = self._users.nonce().encode()
        derived = []
        for secret in secrets:
            salted = salted_password(self._digest, base64.b64encode(secret), salt, ITERATIONS_MIN)
            derived.append(ScramCredential(salt, *keys_of(self._digest, salted)))
        return self._challenge(first, derived)

    def _challenge(self, first: ClientFirst, credentials: Sequence[ScramCredential]) -> bytes:
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
