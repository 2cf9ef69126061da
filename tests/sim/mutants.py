"""Known mistakes of replicated logs, put into the real code at run time: each must be noticed within 2,000 seeds.

A mutant names what it breaks and says which attribute of which object is replaced by what.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Mutant:
    text: str
    #: object, attribute, what is there instead
    patches: tuple[tuple[object, str, Any], ...]


MUTANTS: dict[str, Mutant] = {}


@contextmanager
def applied(name: str | None) -> Iterator[None]:
    if name is None:
        yield
        return
    patches = MUTANTS[name].patches
    before = [(target, attribute, vars(target)[attribute]) for target, attribute, _ in patches]
    for target, attribute, instead in patches:
        setattr(target, attribute, instead)
    try:
        yield
    finally:
        for target, attribute, original in before:
            setattr(target, attribute, original)
