"""The result of a replay: counts by API, the first difference of each API, and the times that responses took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import Enum

from ottla.traffic.comparing import FieldDifference

#: Times are counted in units of 0.1 ms, so that a run of any length has few of them.
UNIT_US = 100


class Outcome(Enum):
    """The outcome of one recorded request. Only with the first two, responses were compared."""

    EQUAL = "equal"
    DIFFERENT = "different"
    PASSING = "passing error in the recording"
    SECRET = "a secret, which the recording lacks"
    UNREADABLE = "not readable"
    NOT_SERVED = "version not served"
    NOT_CONNECTED = "no connection"


#: The outcomes that are differences between the clusters.
FAILURES = (Outcome.DIFFERENT, Outcome.NOT_SERVED, Outcome.NOT_CONNECTED)


class ReplayReport:
    """The counts of one replay. `say` is called at once with a sentence about each first difference."""

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say = say
        self.outcomes: dict[str, Counter[Outcome]] = {}
        self._times: Counter[int] = Counter()
        self._noted: set[str] = set()

    def equal(self, api: str, took_us: int) -> None:
        self.count(api, Outcome.EQUAL)
        self._times[took_us // UNIT_US] += 1

    def different(self, api: str, where: str, differences: list[FieldDifference]) -> None:
        """Count a response that differs. The first one of its API is reported."""
        is_first = not self.outcomes.get(api, Counter())[Outcome.DIFFERENT]
        self.count(api, Outcome.DIFFERENT)
        if is_first:
            path, recorded, got = differences[0]
            more = f" (and {len(differences) - 1} more fields)" if len(differences) > 1 else ""
            self._say(f"{where}: {path or 'the response'}: recorded {recorded}, got {got}{more}")

    def count(self, api: str, outcome: Outcome) -> None:
        self.outcomes.setdefault(api, Counter())[outcome] += 1

    def lost(self, frames: str) -> None:
        self.note(f"the recording has lost {frames} frames: what follows may differ because of that")

    def note(self, text: str) -> None:
        """Report something once."""
        if text not in self._noted and len(self._noted) < 100:
            self._noted.add(text)
            self._say(text)

    @property
    def has_differences(self) -> bool:
        return any(counts[outcome] for counts in self.outcomes.values() for outcome in FAILURES)

    @property
    def requests(self) -> int:
        return sum(counts.total() for counts in self.outcomes.values())

    def total(self, outcome: Outcome) -> int:
        return sum(counts[outcome] for counts in self.outcomes.values())

    def rows(self) -> list[dict[str, object]]:
        """Return a row for each API."""
        found: list[dict[str, object]] = []
        for api, counts in sorted(self.outcomes.items()):
            others = {outcome.value: count for outcome, count in counts.items() if outcome not in COLUMNS and count}
            row: dict[str, object] = {"api": api, "requests": counts.total()}
            row |= {outcome.value: counts[outcome] for outcome in COLUMNS}
            found.append(row | {"not_compared": ", ".join(f"{count} {text}" for text, count in others.items()) or None})
        return found

    def summary(self) -> str:
        """Return the result as a sentence."""
        equal, different = self.total(Outcome.EQUAL), self.total(Outcome.DIFFERENT)
        share = f"{1000 * equal // (equal + different) / 10} %" if equal + different else "none"
        took = f"; p50 {self._time(0.5)} ms, p99 {self._time(0.99)} ms" if self._times else ""
        return f"{self.requests} requests, {equal + different} responses compared, {share} equal{took}"

    def _time(self, part: float) -> str:
        """Return the time in ms within which this part of the responses came."""
        left, units = part * self._times.total(), 0
        for units in sorted(self._times):
            left -= self._times[units]
            if left < 0:
                break
        return f"{units * UNIT_US / 1000:.1f}"


COLUMNS = (Outcome.EQUAL, Outcome.DIFFERENT)
