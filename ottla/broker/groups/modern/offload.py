"""Computations of the group coordinator on worker threads: large targets, and the topics of regular expressions.

A small target takes less time than the way to a thread and back, and its member has it in the response to its own heartbeat.
Kafka 4.4 computes targets of any size on a thread (group.consumer.assignor.offload.enable).

Regular expressions are RE2's, whose time is linear in the length of the name for every expression. Python's own `re` takes 0.4
s for 25 characters and an expression that is made to be slow. RE2 releases the GIL. What surrounds it is Python, so a thread
that went through 100 k names at once would take every other turn of the loop; and ACLs are looked up on the loop, because only
the loop may touch them. On a plain install the engine is Python too, so what one resolution of an expression may take is
bounded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from typing import TypeAlias, TypeVar

from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.server import extras
from ottla.server.extras import Pattern
from ottla.server.regex.automaton import WORK_MAX, TooMuchWork
from ottla.server.tasks import Spawn
from ottla.server.workers import Workers

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Returns the records of a target. It reads nothing that changes while it runs.
Compute: TypeAlias = Callable[[], Sequence[CoordinatorRecord]]
#: Called with the records; with None if the computation failed, which was logged.
OnComputed: TypeAlias = Callable[[Sequence[CoordinatorRecord] | None], None]


class OneWorker:
    """Computes one result at a time on worker threads, and later gives it to `found` on the loop."""

    def __init__(self, workers: Workers, spawn: Spawn) -> None:
        self._workers = workers
        self._spawn = spawn
        self._one = asyncio.Semaphore(1)

    def _run(self, work: Callable[[], Awaitable[T]], found: Callable[[T | None], None], verb: str, what: str) -> None:
        async def run() -> None:
            result = None
            try:
                async with self._one:
                    result = await work()
            except Exception:
                # Any error is caught, because `found` has to be called: until then the group computes nothing else.
                log.exception("Could not %s the %s", verb, what)
            found(result)

        self._spawn(run(), what)


class TargetWorker(OneWorker):
    """Computes targets: `worker(compute, found)`. Two would not be done sooner, because Python runs one of them at a time."""

    def __call__(self, compute: Compute, found: OnComputed) -> None:
        self._run(lambda: self._workers.run(compute), found, "compute", "target of a group")


#: The key of its record has two bytes for its length. Kafka takes a longer expression, and never has topics for it.
BYTES_MAX = 2**15 - 1
#: The work of a resolution: about 5 s of a thread on a plain install. `orders-.*` takes some hundreds of these units for 10,000
#: topics; an expression of 500 names between two `.*` takes some millions.
RESOLUTION_WORK_MAX = 20_000_000


def compiled(expression: str, work_max: int = WORK_MAX) -> Pattern:
    """Compile an expression. Raises ValueError, with the reason, if it is not valid or too large. `work_max`: as in `extras.compiled`."""
    if len(expression) > BYTES_MAX or len(expression.encode()) > BYTES_MAX:
        raise ValueError(f"it has more than {BYTES_MAX} bytes")
    return extras.compiled(expression, work_max)


def matching(patterns: Iterable[Pattern], names: Sequence[str]) -> list[list[str] | None]:
    """Return for each compiled expression the names that match as a whole; None if it needs more work than it may have."""
    return [_matching(pattern, names) for pattern in patterns]


def _matching(pattern: Pattern, names: Sequence[str]) -> list[str] | None:
    try:
        return [name for name in names if pattern.fullmatch(name) is not None]
    except TooMuchWork:
        return None


#: The number of names that are matched in one slice: about 1 ms for a typical expression.
NAMES_AT_A_TIME = 1_000

#: A function that returns whether the client of a request may describe a topic.
MayDescribe: TypeAlias = Callable[[str], bool]
#: Called with the topics of each expression; with None if that failed, which was logged.
OnFound: TypeAlias = Callable[[Mapping[str, Set[str]] | None], None]


class RegexResolver(OneWorker):
    """Resolves regular expressions: `resolve(expressions, names, may_describe, found)`.

    A resolver uses one thread only, whatever its expressions cost: the others are for the disk.
    """

    def __call__(
        self, expressions: Sequence[str], names: Sequence[str], may_describe: MayDescribe, found: OnFound
    ) -> None:
        work = partial(self._resolve, expressions, names, may_describe)
        self._run(work, found, "resolve", "regular expressions of a group")

    async def _resolve(
        self, expressions: Sequence[str], names: Sequence[str], may_describe: MayDescribe
    ) -> dict[str, set[str]]:
        patterns = await self._workers.run(_compiled, expressions)
        topics: dict[str, set[str]] = {expression: set() for expression in expressions}
        for start in range(0, len(names), NAMES_AT_A_TIME):
            some = names[start : start + NAMES_AT_A_TIME]
            for expression, matches in zip(
                list(patterns), await self._workers.run(matching, patterns.values(), some), strict=True
            ):
                if matches is None:
                    log.error("Regular expression '%s' needs too much work. Ignoring it.", expression[:100])
                    del patterns[expression]
                    topics[expression].clear()
                    continue
                topics[expression].update(filter(may_describe, matches))
        return topics


def _compiled(expressions: Sequence[str]) -> dict[str, Pattern]:
    """Compile the expressions. One from another coordinator's records may be invalid here: it matches nothing."""
    patterns: dict[str, Pattern] = {}
    for expression in expressions:
        try:
            patterns[expression] = compiled(expression, RESOLUTION_WORK_MAX)
        except ValueError as error:
            log.error("Couldn't parse regular expression '%s' due to `%s`. Ignoring it.", expression[:100], error)
    return patterns
