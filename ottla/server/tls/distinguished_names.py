"""Distinguished names as Java writes them (RFC 2253). They are the principals' names of clients with certificates.

ACLs and super.users compare the text, so each character has to be the same: the last part comes first, types that are not in
the RFC are numbers with the value's encoding in hex, and Java has its own rules of escaping.

ssl.principal.mapping.rules map a name to that of a principal:

    RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, DEFAULT

The first rule whose pattern matches the whole name decides. A slash within a pattern is written \\/; L and U at the end mean
lower and upper case.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ottla.server.config.key import ConfigError
from ottla.server.java_pattern import check_length, compiled
from ottla.server.principal import expand

KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
ESCAPED = frozenset(',=+<>#;"\\')
#: UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString. Java reads the bytes of each as UTF-8.
STRINGS = frozenset((0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E))


def rfc2253(subject: bytes) -> str:
    """Return the text of a Name in DER."""
    (_, sequence, _) = next(_elements(subject))
    parts = []
    for _, attributes, _ in _elements(sequence):
        parts.append("+".join(_attribute(attribute) for _, attribute, _ in _elements(attributes)))
    return ",".join(reversed(parts))


def _attribute(pair: bytes) -> str:
    (_, oid, _), (tag, value, encoded) = _elements(pair)
    number = _dotted(oid)
    keyword = KEYWORDS.get(number)
    if keyword is None or tag not in STRINGS:
        return f"{keyword or number}=#{encoded.hex()}"
    return f"{keyword}={_escaped(value.decode(errors='replace'))}"


def _escaped(text: str) -> str:
    escaped = "".join("\\" + each if each in ESCAPED else "\\00" if each == "\0" else each for each in text)
    start = len(escaped) - len(escaped.lstrip(" \r"))
    end = len(escaped.rstrip(" \r"))
    blanks = [f"\\{each}" for each in escaped[:start]], [f"\\{each}" for each in escaped[max(start, end) :]]
    return "".join(blanks[0]) + escaped[start:end] + "".join(blanks[1])


def _elements(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Return the elements of a DER sequence: tag, content, and the whole element."""
    pos = 0
    while pos < len(data):
        begin, tag, size = pos, data[pos], data[pos + 1]
        pos += 2
        if size & 0x80:
            count = size & 0x7F
            size = int.from_bytes(data[pos : pos + count], "big")
            pos += count
        yield tag, data[pos : pos + size], data[begin : pos + size]
        pos += size


def _dotted(oid: bytes) -> str:
    numbers, number = [], 0
    for byte in oid:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


NAME = "ssl.principal.mapping.rules"
RULE = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
DEFAULT = "DEFAULT"
BETWEEN = re.compile(r"\s*(?:,\s*|\Z)")


class MappingRule(NamedTuple):
    """One rule. A `pattern` of None is DEFAULT: the name stays unchanged."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        mapped = self.pattern.sub(lambda match: expand(match, self.replacement), name)
        return {"L": mapped.lower(), "U": mapped.upper()}.get(self.case, mapped)


def read_rules(text: str) -> tuple[MappingRule, ...]:
    """Raise ConfigError."""
    rules, text, pos = [], text.strip(), 0
    while pos < len(text):
        match = RULE.match(text, pos)
        if match is not None:
            rules.append(_rule(text, *match.groups()))
            pos = match.end()
        elif text.startswith(DEFAULT, pos):
            rules.append(MappingRule())
            pos += len(DEFAULT)
        after = BETWEEN.match(text, pos)
        if after is None:
            raise _invalid(text, f"Invalid rule: {text[pos:]}")
        pos = after.end()
    return tuple(rules)


def _rule(text: str, pattern: str, replacement: str, case: str) -> MappingRule:
    try:
        return MappingRule(compiled(pattern), replacement, case)
    except ValueError as error:
        raise _invalid(text, f"Invalid pattern {pattern}: {error}") from None


def _invalid(text: str, why: str) -> ConfigError:
    return ConfigError(NAME, text, why, "RULE:pattern/replacement/ with an L or U, or DEFAULT, separated by commas")


def mapped_name(rules: Sequence[MappingRule], name: str) -> str:
    """Return the mapped name. Raises ValueError if no rule matches, or the name is too long; the client is then rejected."""
    for rule in rules:
        if rule.pattern is not None:
            check_length(name, NAME)
        mapped = rule.apply(name)
        if mapped is not None:
            return mapped
    raise ValueError(f"No rules apply to {name}, rules {NAME}")
