"""Kafka's `kafka-storage format --add-scram`: SCRAM users in the metadata of a new cluster (KIP-900).

SCRAM-SHA-512=[name=alice,password=secret]
SCRAM-SHA-256=[name=alice,iterations=8192,salt="MWx2...",saltedpassword="mT0y..."]
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from random import Random

from ottla.protocol.internal_topics.metadata_records import UserScramCredentialRecord
from ottla.server.sasl.scram import (
    HASHES,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    NUMBERS,
    keys_of,
    salted_password,
)

SALT_BYTES = 32
_ARGUMENT = re.compile(r"\s*([^=\s]+)\s*=\s*\[(.*)\]\s*", re.S)
_OPTION = re.compile(r"""\s*(\w+)\s*=\s*(?:"([^"]*)"|([^,"]*))\s*(?:,|$)""")
OPTIONS = frozenset(("name", "password", "iterations", "salt", "saltedpassword"))


def read_add_scram(text: str, rng: Random) -> UserScramCredentialRecord:
    """Return the record of one argument.

    Raises:
        ValueError: the argument is malformed; the text says why, without the password.
    """
    found = _ARGUMENT.fullmatch(text)
    if found is None:
        raise ValueError("add-scram wants MECHANISM=[name=...,password=...]")
    mechanism, options = found[1], _options(found[2])
    if mechanism not in HASHES:
        raise ValueError(f"SCRAM mechanism {mechanism} is not one of {', '.join(HASHES)}")
    if not options.get("name"):
        raise ValueError("You must supply 'name' to add-scram")
    digest, iterations = HASHES[mechanism], _iterations(options)
    salted = _salted(options)
    salt = _decoded("salt", options["salt"]) if "salt" in options else rng.randbytes(SALT_BYTES)
    if salted is None:
        salted = salted_password(digest, options["password"].encode(), salt, iterations)
    keys = keys_of(digest, salted)
    return UserScramCredentialRecord(
        name=options["name"],
        mechanism=NUMBERS[mechanism],
        salt=salt,
        stored_key=keys.stored,
        server_key=keys.server,
        iterations=iterations,
    )


def _options(text: str) -> dict[str, str]:
    options: dict[str, str] = {}
    position = 0
    while position < len(text):
        found = _OPTION.match(text, position)
        if found is None:
            raise ValueError("add-scram wants key=value pairs with commas between them; quote what has a comma")
        if found[1] not in OPTIONS or found[1] in options:
            raise ValueError(f"add-scram has the option '{found[1]}', which is unknown or there twice")
        options[found[1]] = found[2] if found[2] is not None else found[3].strip()
        position = found.end()
    return options


def _iterations(options: Mapping[str, str]) -> int:
    text = options.get("iterations", str(ITERATIONS_MIN))
    if not (text.isdecimal() and len(text) <= 10 and ITERATIONS_MIN <= int(text) <= ITERATIONS_MAX):
        raise ValueError(f"The 'iterations' value must be between {ITERATIONS_MIN} and {ITERATIONS_MAX}")
    return int(text)


def _salted(options: Mapping[str, str]) -> bytes | None:
    if bool(options.get("password")) == ("saltedpassword" in options):
        raise ValueError("You must supply one of 'password' or 'saltedpassword' to add-scram")
    if "saltedpassword" not in options:
        return None
    if "salt" not in options:
        raise ValueError("You must supply 'salt' with 'saltedpassword' to add-scram")
    return _decoded("saltedpassword", options["saltedpassword"])


def _decoded(name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError(f"The '{name}' of add-scram is not base64") from None
