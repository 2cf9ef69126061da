"""`--add-scram 'SCRAM-SHA-256=[name=alice,password=...]'` of kafka-storage (KIP-900): a user that exists from the cluster's start."""

from __future__ import annotations

import base64
from random import Random

from ottla.protocol.internal_topics.metadata_records import UserScramCredentialRecord
from ottla.server.security.sasl.scram_messages import (
    HASHES,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    NUMBERS,
    keys_of,
    salted_password,
)

SALT_BYTES = 24
PARTS = frozenset(("name", "password", "saltedpassword", "salt", "iterations"))


def read_user(text: str, rng: Random) -> UserScramCredentialRecord:
    """Parse the argument as Kafka's ScramParser does.

    Raises:
        ValueError: it is malformed. The message repeats no password.
    """
    mechanism, equals, rest = text.strip().partition("=")
    if not equals:
        raise ValueError("Failed to find equals sign in SCRAM argument")
    if mechanism not in HASHES:
        raise ValueError(f"The add-scram mechanism {mechanism} is not supported.")
    if not rest.startswith("[") or not rest.endswith("]"):
        raise ValueError("Expected configuration string to start with [ and to end with ]")
    parts = dict(_part(part) for part in rest[1:-1].split(","))
    if unknown := sorted(parts.keys() - PARTS):
        raise ValueError(f"Unknown SCRAM configurations: {', '.join(unknown)}")
    if "name" not in parts:
        raise ValueError("You must supply 'name' to add-scram")
    iterations = parts.get("iterations", str(ITERATIONS_MIN))
    if not iterations.isdecimal() or not ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX:
        raise ValueError(
            f"The 'iterations' value must be between {ITERATIONS_MIN} and {ITERATIONS_MAX} for add-scram using {mechanism}"
        )
    salt = _base64(parts, "salt") or rng.randbytes(SALT_BYTES)
    keys = keys_of(HASHES[mechanism], _salted(mechanism, parts, salt, int(iterations)))
    return UserScramCredentialRecord(
        name=parts["name"],
        mechanism=NUMBERS[mechanism],
        salt=salt,
        stored_key=keys.stored,
        server_key=keys.server,
        iterations=int(iterations),
    )


def _part(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError("No equals sign found in SCRAM component")
    if len(value) >= 2 and value.startswith('"') and value.endswith('"'):
        value = value[1:-1]
    return name, value


def _salted(mechanism: str, parts: dict[str, str], salt: bytes, iterations: int) -> bytes:
    if "password" in parts:
        return salted_password(HASHES[mechanism], parts["password"].encode(), salt, iterations)
    if "saltedpassword" not in parts:
        raise ValueError("You must supply one of 'password' or 'saltedpassword' to add-scram")
    if "salt" not in parts:
        raise ValueError("You must supply 'salt' with 'saltedpassword' to add-scram")
    return _base64(parts, "saltedpassword")


def _base64(parts: dict[str, str], name: str) -> bytes:
    try:
        return base64.b64decode(parts.get(name, ""), validate=True)
    except ValueError:
        raise ValueError(f"Failed to decode given {name}") from None
