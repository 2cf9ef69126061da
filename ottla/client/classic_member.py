"""A member of a group by the classic protocol, whatever its type: join, sync, heartbeat and leave, with member id and generation.

What the members say of themselves and what their leader assigns are bytes here; a consumer and a registry give them a meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ottla.client.cluster import ATTEMPT_MS_MAX, ClusterClient
from ottla.client.cluster_error import check
from ottla.client.coordinator_requests import ask_coordinator
from ottla.client.groups import NO_GENERATION
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.shared_structs import ClassicProtocol
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

#: The member joins again: with its member id, or as a new member where the coordinator does not know it any more.
REJOIN = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)
FORGOTTEN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)


class GroupProtocol(NamedTuple):
    """The type of a group and its protocol; times in ms. A member that does not rejoin in `rebalance_ms_max` is left out."""

    protocol_type: str
    name: str
    session_ms: int
    rebalance_ms_max: int


class ClassicMember:
    """One member. `patience_ms` is how long a request is repeated besides the answer's own time; None: the command's limit.

    All requests raise CommandFailed for an error that does not pass, and TimeoutError when time is up.
    """

    def __init__(
        self, cluster: ClusterClient, group: str, protocol: GroupProtocol, patience_ms: int | None = None
    ) -> None:
        self.group = group
        self.id = ""
        #: The generation that the member is in, or NO_GENERATION.
        self.generation = NO_GENERATION
        self._cluster = cluster
        self._protocol = protocol
        self._patience_ms = patience_ms

    async def join(self, metadata: bytes) -> JoinGroupResponse | None:
        """Wait for the next generation. None: the member has to ask again."""
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self._protocol.session_ms,
            rebalance_timeout_ms=self._protocol.rebalance_ms_max,
            member_id=self.id,
            protocol_type=self._protocol.protocol_type,
            protocols=[ClassicProtocol(self._protocol.name, metadata)],
        )
        response, code = await self._ask(request, self._protocol.rebalance_ms_max + ATTEMPT_MS_MAX)
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.id = response.member_id
            return None
        if self.is_out(code):
            return None
        check(f"group {self.group}", code)
        self.id = response.member_id
        joined: JoinGroupResponse = response
        return joined

    async def sync(self, joined: JoinGroupResponse, rows: Sequence[SyncGroupRequestAssignment]) -> bytes | None:
        """Return the assignment; None if the group is in its next rebalance already. `rows` are the leader's."""
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type=self._protocol.protocol_type,
            protocol_name=joined.protocol_name,
            assignments=list(rows),
        )
        response, code = await self._ask(request, self._protocol.rebalance_ms_max)
        if self.is_out(code):
            return None
        check(f"group {self.group}", code)
        return bytes(response.assignment)

    async def heartbeat(self, timeout_ms: int) -> int:
        """Return the error code, with which `is_out` has not been asked yet."""
        request = HeartbeatRequest(self.group, self.generation, self.id)
        _, code = await self._ask(request, timeout_ms)
        return code

    async def leave(self, reason: str) -> None:
        if self.id:
            members = [MemberIdentity(self.id, None, reason)]
            await self._ask(LeaveGroupRequest(self.group, members=members), ATTEMPT_MS_MAX)

    def is_out(self, code: int) -> bool:
        """Return whether the member is not, or no longer, part of the generation; it joins again then."""
        if code in FORGOTTEN:
            self.id = ""
        elif code not in REJOIN:
            return False
        self.generation = NO_GENERATION
        return True

    async def _ask(self, request: object, timeout_ms: int) -> tuple[Any, int]:
        return await ask_coordinator(self._cluster, self.group, request, timeout_ms, self._patience_ms)
