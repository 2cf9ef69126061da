"""One member of a classic group, and the states of the group with their transitions. That table is the specification.

A group that replay rebuilds is Empty or Stable, because no other state is in the log. The rest is a
rebalance in progress, which lives in memory only.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum

from ottla.broker.coordinator.outcome import Response
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.join_group import JoinGroupResponse
from ottla.protocol.messages.sync_group import SyncGroupResponse
from ottla.protocol.slotted import entity
from ottla.server.network.context import Reply


class ClassicGroupState(Enum):
    """The states of a classic group. Their values are the names on the wire."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY = ClassicGroupState.EMPTY
PREPARING_REBALANCE = ClassicGroupState.PREPARING_REBALANCE
COMPLETING_REBALANCE = ClassicGroupState.COMPLETING_REBALANCE
STABLE = ClassicGroupState.STABLE
DEAD = ClassicGroupState.DEAD

TRANSITIONS: dict[ClassicGroupState, dict[ClassicGroupState, str]] = {
    EMPTY: {
        PREPARING_REBALANCE: "the first member joins",
        DEAD: "deleted, expired, or the coordinator moves",
    },
    PREPARING_REBALANCE: {
        COMPLETING_REBALANCE: "all members joined, or those that did not in time are removed",
        EMPTY: "the last member left",
        DEAD: "the coordinator moves",
    },
    COMPLETING_REBALANCE: {
        STABLE: "the leader's assignment is in the log",
        PREPARING_REBALANCE: "a member joins, leaves, changes, fails, or does not sync in time",
        DEAD: "the coordinator moves",
    },
    STABLE: {
        PREPARING_REBALANCE: "a member joins, leaves, changes or fails, or the leader rejoins",
        DEAD: "the coordinator moves",
    },
    DEAD: {},
}

# The states in which a rebalance can start; in PreparingRebalance it continues.
CAN_REBALANCE = frozenset(state for state, following in TRANSITIONS.items() if PREPARING_REBALANCE in following)


# (name, metadata) in the member's order of preference.
Protocols = tuple[tuple[str, bytes], ...]


@entity
class ClassicGroupMember:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    # ---- Soft state: it is not in the log, and is lost when another broker becomes the coordinator.
    # True if the member joined without a member id and has no response yet. It cannot send heartbeats, so only this
    # member's own timeout removes it.
    is_new: bool = False
    awaiting_join: Reply[JoinGroupResponse] | None = None
    awaiting_sync: Reply[SyncGroupResponse] | None = None

    def metadata(self, protocol_name: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise AssertionError(f"member {self.member_id} does not support protocol {protocol_name}")

    def vote(self, candidates: Collection[str]) -> str:
        """Return the first of the member's protocols that all members support."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise AssertionError(f"member {self.member_id} supports none of {candidates}")

    def carry_over(self, known: ClassicGroupMember, protocol_name: str | None) -> None:
        """Take over the state that no record holds from the same member before the record was appended.

        The record has one protocol of the member, the chosen one. The others are kept only if that one is the same.
        """
        if (protocol_name, self.metadata(protocol_name)) in known.protocols:
            self.protocols = known.protocols
        self.is_new = known.is_new
        self.awaiting_join = known.awaiting_join
        self.awaiting_sync = known.awaiting_sync

    def answer_join(self, response: JoinGroupResponse) -> list[Response]:
        """Answer the member's JoinGroup, if one waits."""
        reply, self.awaiting_join = self.awaiting_join, None
        return [] if reply is None else [(reply, response)]

    def answer_sync(self, response: SyncGroupResponse) -> list[Response]:
        """Answer the member's SyncGroup, if one waits."""
        reply, self.awaiting_sync = self.awaiting_sync, None
        return [] if reply is None else [(reply, response)]

    def answers(self, error: ErrorCode) -> list[Response]:
        """Return the error as the response to its JoinGroup or SyncGroup that waits."""
        replies: list[Response] = []
        if self.awaiting_join is not None:
            replies.append((self.awaiting_join, JoinGroupResponse(error_code=error, member_id=self.member_id)))
        if self.awaiting_sync is not None:
            replies.append((self.awaiting_sync, SyncGroupResponse(error_code=error)))
        return replies

    def has_satisfied_heartbeat(self) -> bool:
        """Return True while the member's JoinGroup or SyncGroup waits, which counts as a heartbeat: not for a new member, whose connection may be gone."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)
