"""Scheduled tasks of the active controller: it fences brokers without heartbeats, elects preferred leaders, writes NoOp records.

Each task has one timer; none runs on a standby. A task that fails because leadership was just lost is not repeated.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container
from functools import partial
from itertools import islice

from ottla.controller.decisions.brokers import fence_records
from ottla.controller.decisions.control_state import UNCLEAN_LEADER_ELECTION, ControlState
from ottla.controller.decisions.delegation_tokens import remove_expired
from ottla.controller.decisions.elections import Candidates, elect_unclean_leaders, return_to_preferred_leaders
from ottla.controller.decisions.heartbeats import NEVER_MS
from ottla.controller.decisions.index import TopicIdPartition
from ottla.controller.decisions.leaving import (
    PARTITIONS_PER_TURN,
    left_by_broker,
    settle,
)
from ottla.controller.decisions.outcome import Outcome
from ottla.controller.runtime import Controller, Decide, T
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.metadata_records import NoOpRecord
from ottla.server.clock import TimerHandle

log = logging.getLogger(__name__)

# The delay before the next run of a task if one did not do all of it, so that requests are served in between.
NEXT_PART_MS = 10
# The delay after a decision that could not be written.
REJECTED_RETRY_MS = 1_000
# A check of sessions that is later than this may have heartbeats in its sockets that were not read.
LATE_MS = 50


class ScheduledTasks:
    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._timers: dict[str, TimerHandle] = {}
        self._expiry_ms = NEVER_MS
        #: Brokers whose change of state left partitions for later turns (leaving.py), and the partitions of the current one.
        self._changed_brokers: dict[int, None] = {}
        self._unsettled: dict[TopicIdPartition, None] = {}
        controller.on_activated = self._start
        controller.on_deactivated = self._stop
        controller.on_decided = self.check_sessions
        controller.on_configs_changed = self._configs_changed

    def check_sessions(self) -> None:
        """Set the timer for the session that ends next. It must be called after each change of sessions."""
        if not self._controller.is_active:
            return
        next_ms = self._controller.heartbeats.next_expiry_ms()
        # A timer that fires too early only checks and is set again, which is cheaper than resetting it with each heartbeat.
        if next_ms == NEVER_MS or ("sessions" in self._timers and self._expiry_ms <= next_ms):
            return
        self._expiry_ms = next_ms
        self._later("sessions", max(0, next_ms - self._controller.clock.mono_ms()), self._expire_sessions)

    def connection_lost(self, broker_id: int) -> None:
        """Shorten the session of a broker whose connection broke, so that failover takes less than a second."""
        controller = self._controller
        if controller.is_active:
            controller.heartbeats.connection_lost(
                broker_id, controller.clock.mono_ms(), controller.settings.lost_connection_grace_ms
            )
            self.check_sessions()

    def broker_changed(self, *broker_ids: int) -> None:
        """Schedule decisions about partitions of fenced or unfenced brokers that did not fit into that turn."""
        if self._controller.is_active:
            self._changed_brokers.update(dict.fromkeys(broker_ids))
            self._settle_later()

    def _settle_later(self) -> None:
        if (self._unsettled or self._changed_brokers) and "settle" not in self._timers:
            self._later("settle", 0, self._settle)

    def _settle(self) -> None:
        """Decide about the remaining partitions of one broker, some in each turn; then of the next broker."""
        self._timers.pop("settle", None)
        if not self._unsettled:
            broker_id = next(iter(self._changed_brokers))
            del self._changed_brokers[broker_id]
            self._unsettled.update(dict.fromkeys(left_by_broker(self._controller.state, broker_id)))
        now = list(islice(self._unsettled, PARTITIONS_PER_TURN))
        if now and not self._write(lambda state: settle(state, now)):
            if self._controller.is_active:
                self._later("settle", REJECTED_RETRY_MS, self._settle)
            return
        for key in now:
            self._unsettled.pop(key, None)
        self._settle_later()

    def _start(self) -> None:
        settings = self._controller.settings
        # The previous active controller may have left partitions undecided.
        self.broker_changed(*sorted(self._controller.state.image.cluster.brokers))
        self.check_sessions()
        if settings.metadata_max_idle_interval_ms > 0:
            self._later("no-op", settings.metadata_max_idle_interval_ms, self._no_op)
        if settings.auto_leader_rebalance_enable:
            self._later("rebalance", settings.leader_imbalance_check_interval_ms, self._rebalance)
        self._later("unclean", settings.unclean_leader_election_interval_ms, self._elect_unclean)
        if settings.delegation_tokens.secret_key:
            self._later("tokens", settings.delegation_tokens.check_interval_ms, self._remove_tokens)

    def _stop(self) -> None:
        timers, self._timers = self._timers, {}
        for timer in timers.values():
            timer.cancel()
        self._unsettled.clear()
        self._changed_brokers.clear()

    def _later(self, task: str, delay_ms: float, run: Callable[[], None]) -> None:
        timer = self._timers.pop(task, None)
        if timer is not None:
            timer.cancel()
        self._timers[task] = self._controller.clock.call_later(delay_ms, run)

    def _write(self, decide: Decide[T]) -> bool:
        """Write a decision; return False if that failed."""
        try:
            self._controller.write(decide)
        except KafkaError as error:
            if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:  # the quorum says each minute that its disk is full
                log.info("A periodic decision was rejected: %s", error)
            return False
        except Exception:
            # The timer must be set again nevertheless: otherwise sessions would not expire any more in this epoch.
            log.exception("A periodic decision failed")
            return False
        return True

    def _expire_sessions(self) -> None:
        """Fence the broker whose session ended first, and look again in the next turn.

        With a rack of sixteen brokers the decisions of one turn held the loop for 0.4 s. Each uses an image with the earlier brokers fenced.
        """
        self._timers.pop("sessions", None)
        controller = self._controller
        now_ms = controller.clock.mono_ms()
        late_ms = now_ms - self._expiry_ms
        if late_ms > LATE_MS:
            controller.heartbeats.put_off(late_ms, now_ms)
        stale = controller.heartbeats.stale(now_ms)
        if not stale:
            self.check_sessions()
            return
        broker_id = stale[0]
        log.warning("Fencing broker %d: its heartbeats stopped, or its connection is gone", broker_id)

        def decide(state: ControlState) -> Outcome[None]:
            return Outcome(fence_records(state, broker_id), None)

        is_written = self._write(decide)
        if not controller.is_active:
            return
        if is_written:
            self.broker_changed(broker_id)
        # The disk has failed if it is not written. An immediate retry would keep this node busy without end.
        delay_ms = 0 if is_written else REJECTED_RETRY_MS
        self._expiry_ms = now_ms + delay_ms
        self._later("sessions", delay_ms, self._expire_sessions)

    def _no_op(self) -> None:
        """Write a NoOp record if no other record was written, so that the log shows progress and snapshots have a current timestamp."""
        controller = self._controller
        interval_ms = controller.settings.metadata_max_idle_interval_ms
        idle_ms = controller.clock.mono_ms() - controller.last_append_ms
        if idle_ms >= interval_ms:
            self._write(lambda state: Outcome([NoOpRecord()], None))
            idle_ms = 0
        if controller.is_active:
            self._later("no-op", interval_ms - idle_ms, self._no_op)

    def _rebalance(self) -> None:
        interval_ms = self._controller.settings.leader_imbalance_check_interval_ms
        hold = partial(return_to_preferred_leaders, candidates=Candidates())
        self._in_parts("rebalance", hold, interval_ms, self._rebalance)

    def _elect_unclean(self) -> None:
        interval_ms = self._controller.settings.unclean_leader_election_interval_ms
        hold = partial(elect_unclean_leaders, candidates=Candidates())
        self._in_parts("unclean", hold, interval_ms, self._elect_unclean)

    def _remove_tokens(self) -> None:
        interval_ms = self._controller.settings.delegation_tokens.check_interval_ms
        now_ms = self._controller.clock.wall_ms()
        self._in_parts("tokens", lambda state: remove_expired(state, now_ms), interval_ms, self._remove_tokens)

    def _configs_changed(self, names: Container[str]) -> None:
        """Run unclean elections at once if they may be enabled now: an operator who enables them for an offline partition expects that."""
        if UNCLEAN_LEADER_ELECTION in names and "unclean" in self._timers:
            self._later("unclean", 0, self._elect_unclean)

    def _in_parts(
        self,
        task: str,
        hold: Callable[[ControlState], Outcome[bool]],
        interval_ms: int,
        again: Callable[[], None],
    ) -> None:
        more = False

        def decide(state: ControlState) -> Outcome[bool]:
            nonlocal more
            outcome = hold(state)
            more = outcome.response
            return outcome

        if self._write(decide):
            if more:
                self._later(task, NEXT_PART_MS, lambda: self._in_parts(task, hold, interval_ms, again))
            else:
                self._later(task, interval_ms, again)
        elif self._controller.is_active:
            self._later(task, min(interval_ms, REJECTED_RETRY_MS), again)
