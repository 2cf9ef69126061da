"""JAAS text: login modules with options, in `sasl.jaas.config` and in files of `java.security.auth.login.config`.

<module class> <flag> key="value" ...;                      the property
<section> { <module class> <flag> key="value" ...; ... };   the file
"""

from __future__ import annotations

import re
from typing import NamedTuple

#: The end of a module's class name -> the mechanisms it serves.
MECHANISMS = {
    "PlainLoginModule": ("plain",),
    "ScramLoginModule": ("scram-sha-256", "scram-sha-512"),
    "OAuthBearerLoginModule": ("oauthbearer",),
    "Krb5LoginModule": ("gssapi",),
}
_TOKEN = re.compile(
    r"""\s+ | //[^\n]* | \#[^\n]* | /\*.*?\*/ | (?P<text>"(?:[^"\\]|\\.)*" | [^\s{};="]+ | [{};=])""", re.X | re.S
)
_ESCAPE = re.compile(r"\\(.)", re.S)
_CONTROL = {"n": "\n", "t": "\t", "r": "\r"}


class JaasError(ValueError):
    """The text is no JAAS text. The message quotes no option, because options are passwords."""


class LoginModule(NamedTuple):
    class_name: str
    flag: str
    options: tuple[tuple[str, str], ...]  # values still have their quotes

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return MECHANISMS.get(self.class_name.rpartition(".")[2], ())

    @property
    def values(self) -> dict[str, str]:
        """Options by name, without quotes."""
        return {key: _unquoted(value) for key, value in self.options}

    def text(self) -> str:
        """Return the value of a sasl.jaas.config."""
        return " ".join([self.class_name, self.flag, *(f"{key}={value}" for key, value in self.options)]) + ";"

    def __repr__(self) -> str:
        return f"<LoginModule {self.class_name} with {len(self.options)} options>"


def read_module(text: str) -> LoginModule:
    """Parse the value of a sasl.jaas.config, which has exactly one module."""
    tokens = _tokens(text)
    module, end = _module(tokens, 0)
    if end != len(tokens):
        raise JaasError("there is text behind the first ';'")
    return module


def read_sections(text: str) -> dict[str, list[LoginModule]]:
    """Parse a file into the modules of every section."""
    tokens = _tokens(text)
    sections: dict[str, list[LoginModule]] = {}
    position = 0
    while position < len(tokens):
        name = tokens[position]
        if tokens[position + 1 : position + 2] != ["{"]:
            raise JaasError(f"no '{{' after {name}")
        position += 2
        modules: list[LoginModule] = []
        while position < len(tokens) and tokens[position] != "}":
            module, position = _module(tokens, position)
            modules.append(module)
        if tokens[position : position + 2] != ["}", ";"]:
            raise JaasError(f"section {name} does not end in '}};'")
        sections[name] = modules
        position += 2
    return sections


def _module(tokens: list[str], position: int) -> tuple[LoginModule, int]:
    try:
        end = tokens.index(";", position)
    except ValueError:
        raise JaasError(f"no ';' after {' '.join(tokens[position : position + 1])}") from None
    words = tokens[position:end]
    options = words[2:]
    if len(words) < 2 or len(options) % 3 or any(options[i + 1] != "=" for i in range(0, len(options), 3)):
        # The error quotes no word behind the class, because each may be a password.
        raise JaasError(f"what follows {' '.join(words[:1])[:80]} is not `flag key=value ...`")
    pairs = tuple((options[i], options[i + 2]) for i in range(0, len(options), 3))
    return LoginModule(words[0], words[1], pairs), end + 1


def _tokens(text: str) -> list[str]:
    tokens, position = [], 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise JaasError(f"line {text.count(chr(10), 0, position) + 1} has an open quote")
        if match["text"]:
            tokens.append(match["text"])
        position = match.end()
    return tokens


def _unquoted(value: str) -> str:
    if not value.startswith('"'):
        return value
    return _ESCAPE.sub(lambda match: _CONTROL.get(match[1], match[1]), value[1:-1])
