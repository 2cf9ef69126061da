"""The timers of a replica, for the next step of its core and to remind of a leader that is missing; and the core's notes in the log."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.controller.raft.leader import NEVER
from ottla.controller.raft.quorum_state import QuorumState
from ottla.server.clock import Clock, TimerHandle

logger = logging.getLogger(__name__)

#: The interval of the reminder, which is longer than any election of a quorum that has its majority.
REMIND_MS = 5_000


class TickTimer:
    """The timer for the next `RaftCore.tick`."""

    def __init__(self, clock: Clock, tick: Callable[[], None]) -> None:
        self._clock = clock
        self._tick = tick
        self._handle: TimerHandle | None = None
        self._deadline_ms = NEVER

    def set(self, deadline_ms: int) -> None:
        """Call the tick at this time and not before. With NEVER it is not called."""
        if deadline_ms == self._deadline_ms:
            return
        self.cancel()
        self._deadline_ms = deadline_ms
        if deadline_ms < NEVER:
            self._handle = self._clock.call_later(max(0, deadline_ms - self._clock.mono_ms()), self._fire)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        self._handle = None
        self._deadline_ms = NEVER
        self._tick()


class Reminder:
    """A WARNING each few seconds while a replica knows no leader: a node that waits for its quorum for ever says for whom."""

    def __init__(self, clock: Clock, state: QuorumState) -> None:
        self._clock = clock
        self._state = state
        self._without_leader_ms = 0
        self._timer: TimerHandle | None = None

    def begin(self) -> None:
        self._timer = self._clock.call_later(REMIND_MS, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self.begin()
        self._without_leader_ms = 0 if self._state.leader_id >= 0 else self._without_leader_ms + REMIND_MS
        if self._without_leader_ms:
            logger.warning(
                "[raft %d] No leader of the quorum is known for %d s: %s",
                self._state.config.node_id,
                self._without_leader_ms // 1000,
                self._awaited(),
            )

    def _awaited(self) -> str:
        if voters := sorted(self._state.voters.last.ids):
            return f"a majority of the voters {', '.join(map(str, voters))} has to run and to be reachable"
        servers = ", ".join(f"{each.host}:{each.port}" for each in self._state.config.bootstrap_servers)
        return (
            f"no voter is known either, and controller.quorum.bootstrap.servers={servers} has not named any. Was the first "
            "controller formatted with --standalone or --initial-controllers?"
        )


class Notes:
    """The core's notes in the node's log. Rejected requests are retried: a note is logged once, until another one follows."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._last = ""

    def say(self, note: str) -> None:
        if note != self._last:
            self._last = note
            level = logging.WARNING if note.startswith("REFUSED") else logging.INFO
            logger.log(level, "[raft %d] %s", self._node_id, note)
