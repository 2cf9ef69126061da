"""Known mistakes of coordinators, put into the real code at run time: random histories must notice each, and say why."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest


@dataclass(frozen=True)
class Mutant:
    text: str
    #: Numbers of the invariants that notice it, docs/dev/INVARIANTS.md.
    numbers: frozenset[str]
    #: object, attribute, what is there instead
    patches: tuple[tuple[Any, str, Any], ...]


def mutant(text: str, numbers: str, *patches: tuple[Any, str, Any]) -> Mutant:
    return Mutant(text, frozenset(numbers.split()), patches)


def noticed_by(
    mutant: Mutant, run: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, seeds: Iterable[int]
) -> tuple[int, str]:
    """The first of the seeds that notices, and the number of the invariant; fails when there is none."""
    logging.disable(logging.CRITICAL)
    try:
        for target, attribute, instead in mutant.patches:
            monkeypatch.setattr(target, attribute, instead)
        for seed in seeds:
            try:
                run(seed)
            except Exception as failure:
                return seed, getattr(failure, "number", repr(failure))
    finally:
        logging.disable(logging.NOTSET)
    raise AssertionError(f"not noticed by any seed: {mutant.text}")
