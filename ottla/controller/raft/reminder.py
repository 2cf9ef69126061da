"""A WARNING each few seconds while a replica knows no leader: a node that waits for its quorum for ever says for whom."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.controller.raft.quorum_state import QuorumState

if TYPE_CHECKING:
    from ottla.server.clock import Clock, TimerHandle

logger = logging.getLogger(__name__)

#: Longer than any election of a quorum that has its majority.
REMIND_MS = 5_000


class Reminder:
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
