"""The parts that all random histories share: a seed draws events by weights, a broken promise names its invariant, and mutants
(known mistakes that are put into the real code) prove that the histories notice them.

If a mutant survives, the histories or their checks have become too weak. `python -m tests.sim.measure_mutants` measures which
seed notices which mutant; the tests begin with that seed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

import pytest

from tests.sim.disk import Killed
from tests.sim.noticed import SEEDS_MAX, seeds_for

#: A change of a mutant: object, attribute, and its new value.
Patch = tuple[Any, str, Any]


class Violation(AssertionError):
    """An invariant does not hold. `number` is its number in docs/dev/INVARIANTS.md."""

    def __init__(self, number: str, text: str) -> None:
        super().__init__(f"invariant {number}: {text}")
        self.number = number


def draw(chance: Random, weights: Mapping[str, float]) -> str:
    return chance.choices(list(weights), list(weights.values()))[0]


def parts(seeds: int, each: int) -> list[range]:
    """Return the seeds from 0 on, this many for each test, because a test has a time limit."""
    return [range(first, min(first + each, seeds)) for first in range(0, seeds, each)]


def play(run: Callable[[int], object], seeds: Iterable[int]) -> None:
    """Run the history of each seed. A failure names its seed."""
    for seed in seeds:
        try:
            run(seed)
        except BaseException as failure:
            failure.add_note(f"seed {seed}")
            raise


@dataclass(frozen=True)
class Mutant:
    """A known mistake, as changes of attributes."""

    text: str
    patches: tuple[Patch, ...]
    #: The invariants of which the mutant breaks one. If empty, any invariant or assertion counts.
    by: frozenset[str] = frozenset()

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Apply the mutant for the time of the block."""
        with pytest.MonkeyPatch.context() as patch:
            for target, attribute, instead in self.patches:
                patch.setattr(target, attribute, instead, raising=False)  # some attributes are those of instances
            yield

    def is_caught_by(self, number: str) -> bool:
        return number != "" and (not self.by or number.split()[0] in self.by)

    def is_noticed(self, run: Callable[[], object]) -> bool:
        """Return whether the history reports an error. An exception of the mutant itself proves nothing."""
        logging.disable(logging.CRITICAL)
        try:
            with self.applied():
                run()
        except (AssertionError, pytest.fail.Exception) as failure:
            if str(failure).startswith("Timeout"):
                raise  # the test's own time limit proves nothing, either
            return not self.by or self.is_caught_by(getattr(failure, "number", ""))
        except TypeError:
            raise  # the mutant's signature differs from that of the real function, and so it breaks no promise
        except (Exception, Killed):
            return False
        finally:
            logging.disable(logging.NOTSET)
        return False


def mutant(text: str, by: str, *patches: Patch) -> Mutant:
    return Mutant(text, patches, frozenset(by.split()))


def each_mistake(names: Iterable[Any]) -> list[Any]:
    """Return the parameters of a test of mutants: `make test` has the first, which shows that the histories notice, `make chaos` all."""
    first, *others = names
    return [first, *(pytest.param(name, marks=pytest.mark.chaos) for name in others)]


def assert_noticed(family: str, name: str, is_noticed: Callable[[str, int], bool], seeds_max: int = SEEDS_MAX) -> None:
    seeds = seeds_for(family, name, seeds_max)
    assert any(is_noticed(name, seed) for seed in seeds), f"{seeds_max} seeds of {family} did not notice: {name}"


#: A function that makes a mistake, and the mistakes of a family by their names.
Mistake = Callable[[pytest.MonkeyPatch], None]


def by_name(*mistakes: Mistake) -> dict[str, Mistake]:
    return {mistake.__name__: mistake for mistake in mistakes}


def noticed_by(
    run: Callable[[int], object], broken: type[Exception], mistakes: Mapping[str, Mistake]
) -> Callable[[str, int], bool]:
    """Return whether the history of a seed notices a mistake: it ends with `broken`."""

    def is_noticed(name: str, seed: int) -> bool:
        with pytest.MonkeyPatch.context() as patch:
            mistakes[name](patch)
            try:
                run(seed)
            except broken:
                return True
        return False

    return is_noticed


class Playable(Protocol):
    """A history in virtual time."""

    async def play(self) -> None: ...
    def end(self) -> None: ...


async def play_and_end(history: Playable) -> None:
    """Play a history, and let its tasks end inside of the loop."""
    try:
        await history.play()
    finally:
        history.end()
        with suppress(Exception, asyncio.CancelledError):
            await asyncio.sleep(0)
