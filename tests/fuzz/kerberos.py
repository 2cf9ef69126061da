"""GSSAPI without a KDC: the negotiation around the tokens of Kerberos (RFC 4752), on both sides, and principals by rules.

The system's library reads the tokens themselves. `Library` takes its place: it accepts or rejects a token by its first byte,
and what it returns (a wrapped message, a principal) is any bytes that the other side has chosen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ottla.server.config.key import ConfigError
from ottla.server.network.peer_security import LoginRejected
from ottla.server.sasl.exchange import Authenticated, SaslFailure, Slow
from ottla.server.sasl.gssapi import NO_LAYER, GssapiClient, GssapiExchange, offer
from ottla.server.sasl.kerberos import DEFAULT, KerberosFailure, Rules, read_rules, short_name
from tests.fuzz.logins import pieces, with_lengths
from tests.fuzz.target import Target, Wrong

REALM = "REALM"
RULES = read_rules(REALM, [r"RULE:[2:$1@$0](kafka@.*)s/@.*//L", r"RULE:[1:$1](a.*)s/a(.)/$1-/g", DEFAULT])
#: The first byte of a token. A context token says whether the context is established or not yet, and whether a response
#: follows. WRAPPED is the first byte of a message.
ESTABLISHED, GROWING, SILENT, WRAPPED = b"e", b"g", b"s", b"w"


class Library:
    """Both sides of a context: the part of `kerberos.Accepting` and `kerberos.Initiating` that the system's library does."""

    def __init__(self, principal: bytes) -> None:
        self._principal = principal
        self.established = False
        #: The wrapped messages of the other side, in order.
        self.unwrapped: list[bytes] = []

    def step(self, token: bytes) -> bytes:
        if token[:1] not in (ESTABLISHED, GROWING, SILENT):
            raise KerberosFailure("Invalid token was supplied")
        self.established = token[:1] != GROWING
        return b"" if token[:1] == SILENT else b"answer"

    accept = step

    def wrap(self, message: bytes) -> bytes:
        return WRAPPED + message

    def unwrap(self, message: bytes) -> bytes:
        if not self.established or message[:1] != WRAPPED:
            raise KerberosFailure("A token had an invalid Message Integrity Check")
        self.unwrapped.append(message[1:])
        return message[1:]

    def initiator(self) -> str:
        return self._principal.decode()


def accepting(data: bytes) -> None:
    """Accept a client by its tokens. A client that is logged in has an established context, and has chosen to have no layer."""
    principal, *tokens = pieces(data) if len(data) > 1 else [b""]
    library: Any = Library(principal)
    exchange = GssapiExchange(lambda: library, RULES)
    offered = False
    for token in tokens:
        outcome = exchange.evaluate(token)
        outcome = outcome.step() if isinstance(outcome, Slow) else outcome
        if isinstance(outcome, Authenticated):
            chosen = library.unwrapped
            if not (
                library.established and offered and len(chosen) == 1 and len(chosen[0]) >= 4 and chosen[0][0] & NO_LAYER
            ):
                raise Wrong(f"{outcome.principal} is let in by {tokens!r}")
            return
        offered = offered or outcome == WRAPPED + offer()


def initiating(data: bytes) -> None:
    """Answer a server's challenges: each leads to a token, to the end, or to LoginRejected."""
    principal, *challenges = pieces(data) if len(data) > 1 else [b""]
    library: Any = Library(principal)
    client = GssapiClient(library)
    for challenge in challenges:
        if client.answer(challenge) is None:
            if not (library.established and library.unwrapped and library.unwrapped[0][0] & NO_LAYER):
                raise Wrong(f"the client takes {challenges!r} for a login")
            return


def names(data: bytes) -> None:
    """Read rules, one per line, and a principal in the last line: a rule gives a name without '/' and '@', or ValueError."""
    *texts, principal = data.decode("utf-8", "replace").split("\n")
    rules: Rules = read_rules(REALM, texts)
    name = short_name(rules, principal)
    if name != principal and ("/" in name or "@" in name):
        raise Wrong(f"{principal!r} is {name!r}")


def accepting_seeds() -> Iterator[bytes]:
    chosen = WRAPPED + bytes((NO_LAYER, 0, 0, 0)) + b"alice@REALM"
    for principal in (b"alice@REALM", b"kafka/host@REALM", b"a/b/c@REALM", b"\xff@REALM"):
        yield with_lengths([principal, ESTABLISHED, b"", chosen])
    yield with_lengths([b"alice@REALM", GROWING, SILENT, chosen])
    yield with_lengths([b"alice@REALM", ESTABLISHED, b"more", chosen])
    yield with_lengths([b"alice@REALM", b"\x60", chosen])


def initiating_seeds() -> Iterator[bytes]:
    yield with_lengths([b"alice@REALM", GROWING, ESTABLISHED, WRAPPED + offer(), b""])
    yield with_lengths([b"alice@REALM", SILENT, WRAPPED + b"\x06\0\0\0"])


def name_seeds() -> Iterator[bytes]:
    yield b"RULE:[2:$1@$0](kafka@.*ACME)s/@.*///L\nDEFAULT\nkafka/host@ACME"
    yield b"RULE:[1:$1](a.*)s/(.)b/$1$0/g/U\nab@REALM"
    yield b"DEFAULT\nalice@REALM"


TARGETS = [
    Target("gssapi_tokens", accepting, accepting_seeds, (SaslFailure,), bytes_max=256, share=5),
    Target("gssapi_answers", initiating, initiating_seeds, (LoginRejected,), bytes_max=256, share=1),
    Target("kerberos_names", names, name_seeds, (ConfigError, ValueError), bytes_max=128, share=1),
]
