"""The four messages of SCRAM (RFC 5802), and the keys that prove knowledge of the password. Used by server and client.

    client first   n,[a=authzid],[m=...,]n=user,r=nonce[,extensions]
    server first   [m=...,]r=nonce,s=salt,i=iterations[,extensions]
    client final   c=channel binding,r=nonce[,extensions],p=proof
    server final   e=error | v=signature

Like Kafka, this supports no channel binding, and names are ASCII.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from typing import NamedTuple

#: A mechanism's name -> its hash.
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
#: The number of a mechanism in UserScramCredentialRecord.
NUMBERS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
ITERATIONS_MIN = 4096
#: Kafka's limit when a credential is written (ScramMechanism.MAX_ITERATIONS).
ITERATIONS_MAX = 16_384

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
    """Returns the name with =3D and =2C decoded to '=' and ','."""
    return escaped.replace("=2C", ",").replace("=3D", "=")


def escaped_name(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def server_first(nonce: str, salt: bytes, iterations: int) -> str:
    return f"r={nonce},s={base64.b64encode(salt).decode()},i={iterations}"


class Keys(NamedTuple):
    """The keys that a server stores instead of a password."""

    stored: bytes
    server: bytes


def salted_password(digest: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    """PBKDF2, about 10 ms for 16,384 iterations: it runs on a worker, where OpenSSL releases the GIL."""
    return hashlib.pbkdf2_hmac(digest, password, salt, iterations)


def client_key(digest: str, salted: bytes) -> bytes:
    return hmac.digest(salted, b"Client Key", digest)


def keys_of(digest: str, salted: bytes) -> Keys:
    return Keys(hash_of(digest, client_key(digest, salted)), hmac.digest(salted, b"Server Key", digest))


def hash_of(digest: str, data: bytes) -> bytes:
    return hashlib.new(digest, data).digest()


def xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def auth_message(client_first_bare: str, server_first: str, client_final_without_proof: str) -> bytes:
    return f"{client_first_bare},{server_first},{client_final_without_proof}".encode()
