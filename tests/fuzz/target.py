"""A fuzz target: a function that reads bytes, the errors with which it may reject them, and the inputs to start from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """A target. Its `run` returns, or raises one of `refusals`. Any other exception is a finding, and so is a failed
    assertion.
    """

    name: str
    run: Callable[[bytes], object]
    seeds: Callable[[], Iterable[bytes]]
    refusals: tuple[type[Exception], ...] = ()
    #: The maximum length of an input: most bugs need few bytes, and short inputs are fast.
    bytes_max: int = 2048
    #: The target's share of a number of executions. Slow targets have a small share.
    share: int = 10


class Wrong(Exception):
    """A property does not hold: for example, an object is written in another form than it was read."""


def equal(found: object, expected: object, what: str) -> None:
    if found != expected:
        raise Wrong(f"{what}: {found!r:.300} is not {expected!r:.300}")
