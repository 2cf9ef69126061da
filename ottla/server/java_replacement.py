"""Replacements of Java's regular expressions, in which rules that map names are written."""

from __future__ import annotations

import re

#: A backslash takes the next character as it is, $ refers to a group.
REFERENCE = re.compile(r"\\(.)|\$(\d+)", re.DOTALL)


def expand(match: re.Match[str], replacement: str) -> str:
    """Returns what Java puts in the place of the match."""

    def referred(reference: re.Match[str]) -> str:
        if reference[1] is not None:
            return reference[1]
        # A reference has as many digits as there are groups; further digits are text.
        digits = reference[2]
        for end in range(len(digits), 0, -1):
            if int(digits[:end]) <= match.re.groups:
                return (match[int(digits[:end])] or "") + digits[end:]
        return f"${digits}"

    return REFERENCE.sub(referred, replacement)
