"""A wall clock that jumps against the monotonic one. What deletes by age does not go by it until it has been confirmed.

Retention by time compares the timestamps of records with the wall clock: one that an operator or a virtual machine's host sets ten
days ahead deletes ten days of records at the next check, in Kafka too. Both clocks go on equally unless the wall clock is set, so
that their difference shows a jump, and how large it is.

    jump         the difference has changed by more than a minute since the last look
    held         for what deletes, time goes on from before a jump ahead; after a jump back it is the wall clock's own
    confirmed    the clock has stayed so for ottla.clock.jump.hold.ms (an hour), or the node was restarted
    withdrawn    the clock has come back

A time server's corrections are slower than a minute a look, and are followed. A machine that was suspended looks as if its clock
had jumped ahead: retention is an hour late then.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from ottla.server.clock import Clock
from ottla.server.metrics import Family, gauge

log = logging.getLogger(__name__)

LOOK_MS = 1_000
JUMP_MS = 60_000
HOLD = "ottla.clock.jump.hold.ms"


class ClockJumps:
    """Watches the wall clock of a node; `expiry_ms` is the time for what deletes by age."""

    def __init__(self, clock: Clock, hold_ms: int) -> None:
        self._clock = clock
        self._hold_ms = hold_ms
        #: Wall-clock time minus monotonic time, as it was at the last look, and as what deletes goes by it.
        self._seen_ms = self._trusted_ms = self._difference_ms()
        self._jumped_ms: int | None = None

    def _difference_ms(self) -> int:
        return self._clock.wall_ms() - self._clock.mono_ms()

    def expiry_ms(self) -> int:
        """Return the wall-clock time in milliseconds, without a jump ahead that is not confirmed."""
        self.look()
        return self._clock.mono_ms() + min(self._seen_ms, self._trusted_ms)

    def look(self) -> None:
        """A scheduled task: notices a jump, and that one is confirmed or withdrawn."""
        now_ms, difference_ms = self._clock.mono_ms(), self._difference_ms()
        jump_ms = difference_ms - self._seen_ms
        self._seen_ms = difference_ms
        if abs(jump_ms) > JUMP_MS:
            self._jumped_ms = now_ms
            log.warning(
                "The wall clock jumped by %+d s against the monotonic clock: retention and expirations do not go by it"
                " until it has stayed so for %d s, has come back, or the node is restarted",
                round(jump_ms / 1_000),  # the two clocks are read one after the other
                self._hold_ms // 1_000,
            )
        if self._jumped_ms is not None:
            if abs(difference_ms - self._trusted_ms) <= JUMP_MS:
                log.info("The wall clock has come back: retention and expirations go by it again")
            elif now_ms - self._jumped_ms >= self._hold_ms:
                log.warning("The wall clock is taken for right: retention and expirations go by it again")
            else:
                return
        self._trusted_ms, self._jumped_ms = difference_ms, None

    def metrics(self) -> Iterator[Family]:
        held_ms = 0 if self._jumped_ms is None else self._seen_ms - self._trusted_ms
        yield gauge("ottla_wall_clock_jump_ms", "The jump of the wall clock that is not confirmed yet", held_ms)
