"""JAAS files: `<section> { <module class> required key="value" ...; };`, where brokers of old keep their SASL users.

A section is turned into the property that says the same (`listener.name.<listener>.<mechanism>.sasl.jaas.config`). What
the options mean is the business of the mechanisms.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ottla.container.settings import Refused

#: The end of a module's class name -> the mechanisms it serves.
MECHANISMS = {
    "PlainLoginModule": ("plain",),
    "ScramLoginModule": ("scram-sha-256", "scram-sha-512"),
    "OAuthBearerLoginModule": ("oauthbearer",),
    "Krb5LoginModule": ("gssapi",),
}
DEFAULT_SECTION = "KafkaServer"
_TOKEN = re.compile(
    r"""\s+ | //[^\n]* | \#[^\n]* | /\*.*?\*/ | (?P<text>"(?:[^"\\]|\\.)*" | [^\s{};="]+ | [{};=])""", re.X | re.S
)


class LoginModule(NamedTuple):
    class_name: str
    flag: str
    options: tuple[tuple[str, str], ...]  # values as they were written, with their quotes

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return MECHANISMS.get(self.class_name.rpartition(".")[2], ())

    def text(self) -> str:
        """Return the value of a sasl.jaas.config."""
        return " ".join([self.class_name, self.flag, *(f"{key}={value}" for key, value in self.options)]) + ";"


def read_jaas(text: str, where: str) -> dict[str, list[LoginModule]]:
    """Return the modules of every section."""
    tokens = _tokens(text, where)
    sections: dict[str, list[LoginModule]] = {}
    position = 0
    while position < len(tokens):
        name = tokens[position]
        if tokens[position + 1 : position + 2] != ["{"]:
            raise _malformed(where, f"no '{{' after {name}")
        position += 2
        modules: list[LoginModule] = []
        while position < len(tokens) and tokens[position] != "}":
            module, position = _module(tokens, position, where)
            modules.append(module)
        if tokens[position : position + 2] != ["}", ";"]:
            raise _malformed(where, f"section {name} does not end in '}};'")
        sections[name] = modules
        position += 2
    return sections


def _module(tokens: list[str], position: int, where: str) -> tuple[LoginModule, int]:
    try:
        end = tokens.index(";", position)
    except ValueError:
        raise _malformed(where, f"no ';' after {tokens[position]}") from None
    words = tokens[position:end]
    options = words[2:]
    if len(words) < 2 or len(options) % 3 or any(options[i + 1] != "=" for i in range(0, len(options), 3)):
        raise _malformed(where, f"{' '.join(words)[:60]} is not `class flag key=value ...`")
    pairs = tuple((options[i], options[i + 2]) for i in range(0, len(options), 3))
    return LoginModule(words[0], words[1], pairs), end + 1


def _tokens(text: str, where: str) -> list[str]:
    tokens, position = [], 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _malformed(where, f"line {text.count(chr(10), 0, position) + 1} has an open quote")
        if match["text"]:
            tokens.append(match["text"])
        position = match.end()
    return tokens


def _malformed(where: str, what: str) -> Refused:
    return Refused(f"not a JAAS file: {what}", where, 'write KafkaServer { <module> required key="value"; };')
