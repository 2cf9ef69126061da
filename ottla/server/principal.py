"""Kafka's principal of a peer: a type and a name. Also Java's replacements, with which rules map names."""

from __future__ import annotations

import re
from typing import NamedTuple


class Principal(NamedTuple):
    """A principal; its text is "User:alice".

    If it is `token_authenticated`, a delegation token was used, so it may not create tokens.
    """

    type: str
    name: str
    token_authenticated: bool = False

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")


#: A backslash makes the next character literal, and $ refers to a group by its number or its name.
REFERENCE = re.compile(r"\\(.)|\$([0-9]+)|\$\{([a-zA-Z][a-zA-Z0-9]*)\}", re.DOTALL)


def expand(match: re.Match[str], replacement: str) -> str:
    """Return the text that Java puts in place of the match."""

    def referred(reference: re.Match[str]) -> str:
        if reference[1] is not None:
            return reference[1]
        if reference[3] is not None:
            if reference[3] not in match.re.groupindex:
                raise ValueError(f"no group of the pattern has the name {reference[3]}")
            return match[reference[3]] or ""
        # As many digits belong to a reference as there are groups; further digits are text.
        digits = reference[2]
        for end in range(len(digits), 0, -1):
            if int(digits[:end]) <= match.re.groups:
                return (match[int(digits[:end])] or "") + digits[end:]
        return f"${digits}"

    return REFERENCE.sub(referred, replacement)
