"""Work on all keys of a shard, a bounded number of them in each turn of the loop."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeAlias, TypeVar

from ottla.broker.coordinator.outcome import CoordinatorRecord, Outcome, Unasked
from ottla.broker.coordinator.timers import Timers

log = logging.getLogger(__name__)

T = TypeVar("T")
Look: TypeAlias = Callable[[T, list[CoordinatorRecord]], int]

# Looking at one offset or one transaction takes about 1 us.
LOOKS_PER_TURN = 2_000
# A timer that is due at once would run in the same turn.
NEXT_TURN_MS = 1


def sweep_soon(timers: Timers, key: Hashable, items: Callable[[], Iterable[T]], look: Look[T]) -> Unasked:
    """Begin a sweep by a timer: an event may concern all shards of a broker, whose timers share one budget of a turn."""
    timers.schedule(key, 0, lambda: sweep(timers, key, iter(items()), look))
    return Outcome()


def sweep(timers: Timers, key: Hashable, left: Iterator[T], look: Look[T]) -> Unasked:
    """Decide on a bounded number of the remaining items; a timer of that key continues with the rest.

    `look(item, records)` adds the records of its decision, and returns how many things it has examined. Items may have been
    removed since `left` was made, because other requests are served in between. An item that fails is skipped and logged.
    """
    records: list[CoordinatorRecord] = []
    looked = 0
    for item in left:
        try:
            looked += look(item, records)
        except Exception:
            # Any error, because one broken item must not keep the items after it from their expiration.
            log.exception("%s: %s failed", key, item)
            looked += 1
        if looked >= LOOKS_PER_TURN:
            timers.schedule(key, NEXT_TURN_MS, lambda: sweep(timers, key, left, look))
            break
    return Outcome(records, atomic=False)
