"""The progress of a long step: the work that is done, its rate, and the time that is left.

On a terminal one line is written again and again; otherwise there is one JSON line a second. Both go to standard error, apart
from the data, and a step that ends within a second prints nothing.
"""

from __future__ import annotations

import json
import sys
from collections import deque
from types import TracebackType
from typing import TextIO

from ottla.cli.output import printable
from ottla.cli.units import duration_text, size_text
from ottla.client.failures import plural

#: The rate is measured over the last seconds: a copy that begins slowly must not predict a late end.
WINDOW_MS = 10_000
EVERY_MS = 1_000
ON_TERMINAL_EVERY_MS = 200
ERASE_LINE = "\x1b[K"


class Pace:
    """Rate and remaining time, from the progress at given times. Times are monotonic milliseconds from the caller."""

    def __init__(self, now_ms: int) -> None:
        self._samples: deque[tuple[int, float]] = deque([(now_ms, 0.0)])

    def add(self, now_ms: int, done: float) -> None:
        self._samples.append((now_ms, done))
        while len(self._samples) > 2 and now_ms - self._samples[1][0] > WINDOW_MS:
            self._samples.popleft()

    @property
    def per_s(self) -> float:
        """Return how much is done in a second; 0 before anything is known."""
        (first_ms, first), (last_ms, last) = self._samples[0], self._samples[-1]
        return max(0.0, last - first) * 1000 / (last_ms - first_ms) if last_ms > first_ms else 0.0

    def seconds_left(self, total: float) -> float | None:
        """Return the seconds until `total` is reached; None without progress."""
        left = total - self._samples[-1][1]
        if left <= 0:
            return 0.0
        return left / self.per_s if self.per_s else None


class ProgressLine:
    """The progress of one step towards `total`, which may grow; None means that the step has no end."""

    def __init__(
        self, what: str, total: float | None, unit: str, now_ms: int, stream: TextIO | None = None, done: float = 0
    ) -> None:
        self.what, self.total, self.unit, self.done = what, total, unit, done
        self._before = done
        self._stream = sys.stderr if stream is None else stream
        self._on_terminal = self._stream.isatty()
        self._pace = Pace(now_ms)
        self._shown_ms = now_ms
        self._is_dirty = False

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the line, so that the next message begins on a new one."""
        if self._is_dirty:
            self._stream.write("\n")
            self._stream.flush()

    def update(self, done: float, now_ms: int, total: float | None = None) -> None:
        """Update the work that is done, and show it if the last line is old enough."""
        self.done, self.total = done, self.total if total is None else total
        self._pace.add(now_ms, done - self._before)
        if now_ms - self._shown_ms < (ON_TERMINAL_EVERY_MS if self._on_terminal else EVERY_MS):
            return
        self._shown_ms = now_ms
        if self._on_terminal:
            self._stream.write(f"\r{printable(self.text())}{ERASE_LINE}")
            self._is_dirty = True
        else:
            self._stream.write(json.dumps(self.row()) + "\n")
        self._stream.flush()

    def text(self) -> str:
        """Return the progress as a line for people."""
        done, rate = self._amount(self.done), f"{self._amount(self._pace.per_s)}/s"
        if self.total is None:
            return f"{self.what}: {done}, {rate}"
        share = self.done / self.total if self.total else 1.0
        left = self._seconds_left()
        ends = "" if left is None else f", {duration_text(left)} left"
        return f"{self.what}: {done} of {self._amount(self.total)} ({share:.0%}), {rate}{ends}"

    def row(self) -> dict[str, object]:
        """Return the progress as fields for programs."""
        left = self._seconds_left()
        return {
            "progress": self.what,
            "unit": self.unit,
            "done": round(self.done),
            "total": None if self.total is None else round(self.total),
            "per_s": round(self._pace.per_s, 1),
            "seconds_left": None if left is None else round(left, 1),
        }

    def _seconds_left(self) -> float | None:
        return None if self.total is None else self._pace.seconds_left(self.total - self._before)

    def _amount(self, number: float) -> str:
        return (
            size_text(number)
            if self.unit == "bytes"
            else f"{number:,.0f} {plural(round(number), self.unit.removesuffix('s'))}"
        )
