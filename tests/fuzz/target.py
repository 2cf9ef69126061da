"""A fuzz target: a function that reads bytes, the errors it may refuse them with, and the inputs to start from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """A target of which `run` returns, or raises one of `refusals`. Any other exception is a finding, and so is a failed assertion."""

    name: str
    run: Callable[[bytes], object]
    seeds: Callable[[], Iterable[bytes]]
    refusals: tuple[type[Exception], ...] = ()
    #: Longer inputs are not made: what goes wrong does so in few bytes, and short inputs are fast.
    bytes_max: int = 2048
    #: Its share of a number of executions; slow targets take less.
    share: int = 10


class Wrong(Exception):
    """A property does not hold: what was read is written as something else, for example."""


def equal(found: object, expected: object, what: str) -> None:
    if found != expected:
        raise Wrong(f"{what}: {found!r:.300} is not {expected!r:.300}")
