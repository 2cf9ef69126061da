"""ssl.principal.mapping.rules: map the distinguished name of a certificate to the name of a principal.

    RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, DEFAULT

The first rule whose pattern matches the whole name decides. A slash within a pattern is written \\/; L and U at the end are for
lower and upper case.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ottla.server.config.errors import ConfigError
from ottla.server.java_replacement import expand

NAME = "ssl.principal.mapping.rules"
RULE = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
DEFAULT = "DEFAULT"
BETWEEN = re.compile(r"\s*(?:,\s*|\Z)")


class Rule(NamedTuple):
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


def read_rules(text: str) -> tuple[Rule, ...]:
    """Raises ConfigError."""
    rules, text, pos = [], text.strip(), 0
    while pos < len(text):
        match = RULE.match(text, pos)
        if match is not None:
            rules.append(_rule(text, *match.groups()))
            pos = match.end()
        elif text.startswith(DEFAULT, pos):
            rules.append(Rule())
            pos += len(DEFAULT)
        after = BETWEEN.match(text, pos)
        if after is None:
            raise _invalid(text, f"Invalid rule: {text[pos:]}")
        pos = after.end()
    return tuple(rules)


def _rule(text: str, pattern: str, replacement: str, case: str) -> Rule:
    try:
        return Rule(re.compile(pattern), replacement, case)
    except re.error as error:
        raise _invalid(text, f"Invalid pattern {pattern}: {error}") from None


def _invalid(text: str, why: str) -> ConfigError:
    return ConfigError(NAME, text, why, "RULE:pattern/replacement/ with an L or U, or DEFAULT, separated by commas")


def mapped_name(rules: Sequence[Rule], name: str) -> str:
    """Returns the mapped name. Raises ValueError if no rule matches; the client is then rejected."""
    for rule in rules:
        mapped = rule.apply(name)
        if mapped is not None:
            return mapped
    raise ValueError(f"No rules apply to {name}, rules {NAME}")
