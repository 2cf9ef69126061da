"""Matches all topic names of a cluster with regular expressions, on a worker thread, some names at a time.

RE2 releases the GIL. What surrounds it is Python, so a thread that went through 100 k names at once would take every other turn of
the loop; and ACLs are looked up on the loop, whose objects they are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence, Set
from typing import TypeAlias

from ottla.broker.groups.modern.regex import compiled, matching
from ottla.server.service import Spawn
from ottla.server.workers import Workers

log = logging.getLogger(__name__)

#: About 1 ms for an expression as people write them.
NAMES_AT_A_TIME = 1_000

#: Whether the client of a request may describe a topic.
MayDescribe: TypeAlias = Callable[[str], bool]
#: Called with the topics of each expression; with None if that failed, which was logged.
OnFound: TypeAlias = Callable[[Mapping[str, Set[str]] | None], None]


class RegexResolver:
    """Resolves regular expressions: `resolve(expressions, names, may_describe, found)` calls `found` on the loop, later."""

    def __init__(self, workers: Workers, spawn: Spawn) -> None:
        self._workers = workers
        self._spawn = spawn
        # One takes one thread, whatever its expressions cost: the others are for the disk.
        self._one = asyncio.Semaphore(1)

    def __call__(
        self, expressions: Sequence[str], names: Sequence[str], may_describe: MayDescribe, found: OnFound
    ) -> None:
        async def resolve() -> None:
            topics = None
            try:
                async with self._one:
                    topics = await self._resolve(expressions, names, may_describe)
            except Exception:
                # Any error, because `found` has to be called: until then the group resolves no expression.
                log.exception("Could not resolve the regular expressions of a group")
            found(topics)

        self._spawn(resolve(), "regular expressions of a group")

    async def _resolve(
        self, expressions: Sequence[str], names: Sequence[str], may_describe: MayDescribe
    ) -> dict[str, set[str]]:
        patterns = await self._workers.run(_compiled, expressions)
        topics: dict[str, set[str]] = {expression: set() for expression in expressions}
        for start in range(0, len(names), NAMES_AT_A_TIME):
            some = names[start : start + NAMES_AT_A_TIME]
            for expression, matches in zip(
                patterns, await self._workers.run(matching, patterns.values(), some), strict=True
            ):
                topics[expression].update(filter(may_describe, matches))
        return topics


def _compiled(expressions: Sequence[str]) -> dict[str, object]:
    """Those of another coordinator's records may be none here: they match nothing."""
    patterns = {}
    for expression in expressions:
        try:
            patterns[expression] = compiled(expression)
        except ValueError as error:
            log.error("Couldn't parse regular expression '%s' due to `%s`. Ignoring it.", expression[:100], error)
    return patterns
