"""Lines of the log that anybody may cause by connecting: some a second, and what was left out is counted in the next one.

A client whose certificate is wrong, or a node that knows a peer by a wrong address, connects again and again: 80 lines a second were seen.
"""

from __future__ import annotations

import logging

from ottla.server.clock import Clock

LINES_PER_SECOND = 10


class BoundedLines:
    """Writes up to `LINES_PER_SECOND` warnings of one kind."""

    def __init__(self, clock: Clock, log: logging.Logger) -> None:
        self._clock = clock
        self._log = log
        self._second_ms = 0
        self._written = 0
        self._left_out = 0

    def warning(self, text: str, *given: object) -> None:
        """Write a line, or count it."""
        now_ms = self._clock.mono_ms()
        if now_ms - self._second_ms >= 1_000:
            self._second_ms, self._written = now_ms, 0
        if self._written >= LINES_PER_SECOND:
            self._left_out += 1
            return
        self._written += 1
        if self._left_out:
            text, given = f"{text} (%d more before it were not written)", (*given, self._left_out)
            self._left_out = 0
        self._log.warning(text, *given)
