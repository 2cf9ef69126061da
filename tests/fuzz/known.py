"""Findings that are not fixed yet, in the form that the corpus has: input, then `# known [KIND] what is wrong`.

KIND is what the judge says, or a pattern of `fnmatch`. Such a finding does not fail a run, and a test fails as soon as the
input no longer shows it.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import cache
from typing import NamedTuple

from tests.fuzz import corpus

_WHY = re.compile(r"known \[(?P<kind>[^]]+)\] (?P<reason>.+)")


class Known(NamedTuple):
    target: str
    kind: str
    data: bytes
    reason: str


@cache
def known(target: str) -> list[Known]:
    found = [(kept.data, _WHY.fullmatch(kept.why)) for kept in corpus.read(target)]
    return [Known(target, match["kind"], data, match["reason"]) for data, match in found if match is not None]


def reason(target: str, kind: str) -> str | None:
    """Return why a finding of this kind is already known, or None if it is new."""
    return next((each.reason for each in known(target) if fnmatchcase(kind, each.kind)), None)
