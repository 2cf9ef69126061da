"""One member of a classic group."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ottla.protocol.messages.join_group import JoinGroupResponse
from ottla.protocol.messages.sync_group import SyncGroupResponse
from ottla.server.network.reply import Reply

# (name, metadata) in the member's order of preference.
Protocols = tuple[tuple[str, bytes], ...]


@dataclass(slots=True, eq=False)
class Member:
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

    def carry_over(self, known: Member, protocol_name: str | None) -> None:
        """Take over what no record holds from the same member before the record was appended.

        The record has one protocol of the member, the chosen one. The others are kept only if that one is the same.
        """
        if (protocol_name, self.metadata(protocol_name)) in known.protocols:
            self.protocols = known.protocols
        self.is_new = known.is_new
        self.awaiting_join = known.awaiting_join
        self.awaiting_sync = known.awaiting_sync

    def has_satisfied_heartbeat(self) -> bool:
        """True while the member's JoinGroup or SyncGroup waits, which counts as a heartbeat; not for a new member, whose connection may be gone."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)
