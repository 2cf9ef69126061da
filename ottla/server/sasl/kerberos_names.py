"""sasl.kerberos.principal.to.local.rules: map a Kerberos principal to the name of a Kafka principal.

    RULE:[2:$1@$0](kafka@.*ACME)s/@.*///L, DEFAULT

    [n:format]      for principals of n components: `primary@REALM` has one, `primary/instance@REALM` two; $0 is the realm
    (pattern)       only if the pattern matches the whole formatted name
    s/from/to/g     replaces the first match, with g all of them
    /L  /U          lower or upper case
    DEFAULT         the first component of a principal of the default realm

The first rule that applies decides. As in Kafka a result with '/' or '@' is an error, and the next rule is not tried.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ottla.server.config.errors import ConfigError
from ottla.server.java_replacement import expand

NAME = "sasl.kerberos.principal.to.local.rules"
DEFAULT = "DEFAULT"
_PRINCIPAL = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_RULE = re.compile(r"RULE:\[([0-9]+):([^\]]*)\](?:\(([^)]*)\))?(?:s/([^/]*)/([^/]*)/(g)?)?/?([LU]?)")
_PARAMETER = re.compile(r"\$([0-9]*)")
_NOT_SIMPLE = re.compile("[/@]")


class Rule(NamedTuple):
    """One rule but DEFAULT. A `match` of None fits each name; a `source` of None replaces nothing."""

    components: int
    format: str
    match: re.Pattern[str] | None
    source: re.Pattern[str] | None
    target: str
    replaces_all: bool
    case: str


class Rules(NamedTuple):
    """A rule of None is DEFAULT."""

    default_realm: str
    rules: Sequence[Rule | None]


def read_rules(default_realm: str, texts: Sequence[str]) -> Rules:
    """Raises ConfigError."""
    return Rules(default_realm, tuple(None if text == DEFAULT else _rule(text) for text in texts))


def _rule(text: str) -> Rule:
    found = _RULE.fullmatch(text)
    if found is None:
        raise _invalid(text, f"Invalid rule: {text}")
    components, form, match, source, target, repeat, case = found.groups()
    try:
        compiled = [None if pattern is None else re.compile(pattern) for pattern in (match, source)]
    except re.error as error:
        raise _invalid(text, f"Invalid pattern: {error}") from None
    return Rule(int(components), form, compiled[0], compiled[1], target or "", repeat is not None, case)


def _invalid(text: str, why: str) -> ConfigError:
    return ConfigError(NAME, text, why, "RULE:[n:format](pattern)s/from/to/g/L, or DEFAULT, separated by commas")


def short_name(rules: Rules, principal: str) -> str:
    """Returns the name for Kafka.

    Raises:
        ValueError: no rule applies, or the principal has more than two components. The client is then rejected.
    """
    found = _PRINCIPAL.fullmatch(principal)
    if found is None:
        if "@" in principal:
            raise ValueError(f"Malformed Kerberos name: {principal}")
        return principal
    primary, instance, realm = found.groups()
    parts = (realm, primary) if instance is None else (realm, primary, instance)
    for rule in rules.rules:
        if rule is None:
            name = primary if realm == rules.default_realm else None
        else:
            name = _apply(rule, parts)
        if name is not None:
            return name
    raise ValueError(f"No rules apply to {principal}, rules {NAME}")


def _apply(rule: Rule, parts: Sequence[str]) -> str | None:
    if len(parts) - 1 != rule.components:
        return None
    name = _PARAMETER.sub(lambda parameter: _part(rule.format, parts, parameter[1]), rule.format)
    if rule.match is not None and rule.match.fullmatch(name) is None:
        return None
    if rule.source is not None:
        count = 0 if rule.replaces_all else 1
        name = rule.source.sub(lambda match: expand(match, rule.target), name, count=count)
    if _NOT_SIMPLE.search(name):
        raise ValueError(f"Non-simple name {name} after a rule of {NAME}")
    return {"L": name.lower(), "U": name.upper()}.get(rule.case, name)


def _part(form: str, parts: Sequence[str], number: str) -> str:
    if not number or int(number) >= len(parts):
        raise ValueError(f"${number} in [{form}] of {NAME} is outside of the valid range 0 to {len(parts) - 1}")
    return parts[int(number)]
