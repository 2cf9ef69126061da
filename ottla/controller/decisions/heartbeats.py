"""Sessions of the brokers. This is soft state: each active controller starts with new sessions, which are not in the log.

A broker has a session while its heartbeats arrive, and for a short grace period after its connection broke: a killed process
closes its sockets at once, and writes would stop for the whole session timeout (9 s). A new active controller assumes a full
session of every unfenced broker, because it has no heartbeats yet. Such an assumed session, and one whose connection broke,
do not prevent a restarted broker from registering (in Kafka it waits for 9 s).

A controller that was held up, or slept with its machine, has heartbeats in its sockets that it has not read when it looks for ended
sessions. It puts off each of them by the time that it was late, again after each stall, and by PUT_OFF_TIMEOUTS session timeouts in
all: a controller that is late at every look would not notice a dead broker otherwise.

    current     wants fence  wants shutdown   next
    FENCED      -            yes              SHUTDOWN_NOW
    FENCED      no           no               UNFENCED if it has read its own registration, else FENCED
    FENCED      yes          no               FENCED
    UNFENCED    yes          yes              SHUTDOWN_NOW
    UNFENCED    yes          no               FENCED
    UNFENCED    no           yes              CONTROLLED_SHUTDOWN if it leads anything, else SHUTDOWN_NOW
    CONTROLLED  -            -                SHUTDOWN_NOW once it leads nothing and every active broker has that metadata
"""

from __future__ import annotations

from enum import Enum

from ottla.protocol.slotted import mutable

NEVER_MS = 1 << 62
# A broker whose heartbeat failed in a stall needs a moment between two stalls for the next one.
PUT_OFF_TIMEOUTS = 3


class BrokerControlState(Enum):
    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"

    @property
    def fenced(self) -> bool:
        return self in (BrokerControlState.FENCED, BrokerControlState.SHUTDOWN_NOW)


@mutable
class _Session:
    fenced: bool
    deadline_ms: int
    is_confirmed: bool = False  # a registration or heartbeat has arrived at this controller
    metadata_offset: int = -1
    # The metadata log's end offset when all leaders had been moved away; -1: not shutting down.
    controlled_shutdown_offset: int = -1
    # Set when the connection broke: the session ends at this time unless a heartbeat arrives.
    grace_deadline_ms: int = NEVER_MS
    #: The time that this controller was late since the last heartbeat.
    put_off_ms: int = 0

    @property
    def shutting_down(self) -> bool:
        return self.controlled_shutdown_offset >= 0

    @property
    def expires_ms(self) -> int:
        return min(self.deadline_ms, self.grace_deadline_ms)

    @property
    def state(self) -> BrokerControlState:
        if self.shutting_down:
            return BrokerControlState.CONTROLLED_SHUTDOWN
        return BrokerControlState.FENCED if self.fenced else BrokerControlState.UNFENCED


class Heartbeats:
    def __init__(self, session_timeout_ms: int) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._sessions: dict[int, _Session] = {}

    def assume(self, broker_id: int, fenced: bool, now_ms: int) -> None:
        """Assume a session of a registered broker, when this controller becomes active."""
        self._sessions[broker_id] = _Session(fenced, now_ms + self._session_timeout_ms)

    def register(self, broker_id: int, fenced: bool, now_ms: int) -> None:
        """Begin or update the session of a broker that registered; a fenced broker's session does not time out."""
        session = self._sessions.get(broker_id)
        if session is None:
            session = self._sessions[broker_id] = _Session(fenced, now_ms + self._session_timeout_ms)
        session.is_confirmed = True
        session.fenced = fenced
        session.deadline_ms = now_ms + self._session_timeout_ms
        if fenced:
            session.controlled_shutdown_offset = -1

    def remove(self, broker_id: int) -> None:
        self._sessions.pop(broker_id, None)

    def has_session(self, broker_id: int, now_ms: int) -> bool:
        session = self._sessions.get(broker_id)
        if session is None or session.fenced or not session.is_confirmed:
            return False
        return now_ms <= session.deadline_ms and session.grace_deadline_ms == NEVER_MS

    def touch(self, broker_id: int, fenced: bool, metadata_offset: int, now_ms: int) -> None:
        """Record a heartbeat."""
        session = self._sessions[broker_id]
        session.deadline_ms = now_ms + self._session_timeout_ms
        session.grace_deadline_ms = NEVER_MS
        session.put_off_ms = 0
        session.is_confirmed = True
        session.metadata_offset = metadata_offset
        session.fenced = fenced
        if fenced:
            session.controlled_shutdown_offset = -1

    def connection_lost(self, broker_id: int, now_ms: int, grace_ms: int) -> None:
        session = self._sessions.get(broker_id)
        if session is not None and not session.fenced:
            session.grace_deadline_ms = min(session.grace_deadline_ms, now_ms + grace_ms)

    def put_off(self, late_ms: int, now_ms: int) -> None:
        """Let the sessions and grace periods that have ended go on for the time that the controller was late.

        A broker whose heartbeat failed in the stall has closed its connection, and sends the next heartbeat over another one.
        """
        for session in self._sessions.values():
            more_ms = min(late_ms, PUT_OFF_TIMEOUTS * self._session_timeout_ms - session.put_off_ms)
            if now_ms > session.expires_ms and more_ms > 0:
                session.put_off_ms += more_ms
                session.deadline_ms = max(session.deadline_ms, now_ms + more_ms)
                if session.grace_deadline_ms < now_ms:
                    session.grace_deadline_ms = now_ms + more_ms

    def begin_controlled_shutdown(self, broker_id: int, log_end: int) -> None:
        session = self._sessions[broker_id]
        assert not session.fenced, f"fenced broker {broker_id} enters controlled shutdown"
        session.controlled_shutdown_offset = max(session.controlled_shutdown_offset, log_end)

    def next_state(
        self,
        broker_id: int,
        *,
        wants_fence: bool,
        wants_shutdown: bool,
        caught_up: bool,
        leads_any: bool,
    ) -> tuple[BrokerControlState, BrokerControlState]:
        """Return (current, next) by the table above."""
        session = self._sessions[broker_id]
        current = session.state
        match current:
            case BrokerControlState.FENCED:
                if wants_shutdown:
                    return current, BrokerControlState.SHUTDOWN_NOW
                if not wants_fence and caught_up:
                    return current, BrokerControlState.UNFENCED
            case BrokerControlState.UNFENCED:
                if wants_fence:
                    return current, BrokerControlState.SHUTDOWN_NOW if wants_shutdown else BrokerControlState.FENCED
                if wants_shutdown:
                    return current, (
                        BrokerControlState.CONTROLLED_SHUTDOWN if leads_any else BrokerControlState.SHUTDOWN_NOW
                    )
            case BrokerControlState.CONTROLLED_SHUTDOWN:
                if not leads_any and session.controlled_shutdown_offset <= self._lowest_active_offset():
                    return current, BrokerControlState.SHUTDOWN_NOW
        return current, current

    def stale(self, now_ms: int) -> list[int]:
        """Return the unfenced brokers whose session has ended, the longest expired first."""
        expired = [
            (session.expires_ms, broker_id)
            for broker_id, session in self._sessions.items()
            if not session.fenced and now_ms > session.expires_ms
        ]
        return [broker_id for _, broker_id in sorted(expired)]

    def since_contact_ms(self, now_ms: int) -> dict[int, int]:
        """Return the time since the last heartbeat or registration of each broker, and at most a session's."""
        timeout_ms = self._session_timeout_ms
        return {
            broker_id: max(0, min(timeout_ms, now_ms - (session.deadline_ms - timeout_ms)))
            for broker_id, session in self._sessions.items()
        }

    def next_expiry_ms(self) -> int:
        """Return the next time at which `stale` may return a broker."""
        return min((s.expires_ms + 1 for s in self._sessions.values() if not s.fenced), default=NEVER_MS)

    def _lowest_active_offset(self) -> int:
        active = (s.metadata_offset for s in self._sessions.values() if not s.fenced and not s.shutting_down)
        return min(active, default=NEVER_MS)
