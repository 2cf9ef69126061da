"""The pause before a process that has died is started again: it doubles from death to death, and is the first again after a quiet minute."""

from __future__ import annotations

FIRST_S = 0.5
#: A crash loop of one broker must not take the processors from the others.
LONGEST_S = 30.0
#: A process that has run for this long has not died of its start.
QUIET_S = 60.0


class Backoff:
    """Counts the deaths of one process in a row."""

    def __init__(self) -> None:
        self._deaths = 0

    def after(self, ran_s: float) -> float:
        """Returns the pause after a death of a process that ran for `ran_s`."""
        if ran_s >= QUIET_S:
            self._deaths = 0
        self._deaths += 1
        return min(LONGEST_S, FIRST_S * 2.0 ** min(self._deaths - 1, 16))
