"""The coordinator of one classic group in memory: members join, sync, send heartbeats and are missed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

#: How often sessions are looked at.
LOOK_S = 0.5
EMPTY, PREPARING, COMPLETING, STABLE = "Empty", "PreparingRebalance", "CompletingRebalance", "Stable"


@dataclass
class GroupMember:
    session_s: float
    rebalance_s: float
    metadata: bytes = b""
    seen_s: float = 0.0
    #: The future of its JoinGroup, or of its SyncGroup, that is not answered yet.
    joining: asyncio.Future[JoinGroupResponse] | None = None
    syncing: asyncio.Future[SyncGroupResponse] | None = None
    assignment: bytes = b""


@dataclass
class ModelGroup:
    """A group as its coordinator stores it. Requests wait until they can be answered."""

    state: str = EMPTY
    generation: int = 0
    leader: str = ""
    members: dict[str, GroupMember] = field(default_factory=dict)
    _given: int = 0
    _pending: set[str] = field(default_factory=set)
    _until_s: float = 0.0

    async def answer(self, request: object) -> Any:
        match request:
            case JoinGroupRequest():
                return await self._join(request)
            case SyncGroupRequest():
                return await self._sync(request)
            case HeartbeatRequest():
                return HeartbeatResponse(error_code=self._heartbeat(request))
            case LeaveGroupRequest():
                for row in request.members:
                    self._remove(row.member_id)
                return LeaveGroupResponse(members=[MemberResponse(row.member_id) for row in request.members])
        raise AssertionError(request)

    async def watch(self) -> None:
        """Remove members whose sessions are over, and end rebalances that last too long; run for ever."""
        while True:
            await asyncio.sleep(LOOK_S)
            now_s = asyncio.get_running_loop().time()
            for name, member in list(self.members.items()):
                is_waiting = member.joining is not None or member.syncing is not None
                if not is_waiting and member.seen_s + member.session_s < now_s:
                    self._remove(name)
            if self.state == PREPARING and now_s > self._until_s:
                self._complete()

    def rebalance(self) -> None:
        """Begin the next generation, as after a move of the coordinator."""
        if self.members:
            self._prepare()

    # -- Requests ----------------------------------------------------------------------------------------------------------

    async def _join(self, request: JoinGroupRequest) -> JoinGroupResponse:
        name = request.member_id
        if not name:
            self._given += 1
            name = f"m{self._given:03}"
            self._pending.add(name)
            return JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=name)
        if name not in self.members and name not in self._pending:
            return JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        self._pending.discard(name)
        made = GroupMember(request.session_timeout_ms / 1000, request.rebalance_timeout_ms / 1000)
        member = self.members.setdefault(name, made)
        member.metadata = bytes(request.protocols[0].metadata)
        waiting: asyncio.Future[JoinGroupResponse] = asyncio.get_running_loop().create_future()
        if member.joining is not None and not member.joining.done():
            member.joining.set_result(JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        member.joining = waiting
        if self.state != PREPARING:
            self._prepare()
        self._complete_if_all()
        return await waiting

    async def _sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        code = self._code(request.member_id, request.generation_id)
        if code or self.state == PREPARING:
            return SyncGroupResponse(error_code=code or ErrorCode.REBALANCE_IN_PROGRESS)
        member = self.members[request.member_id]
        if self.state == COMPLETING:
            waiting: asyncio.Future[SyncGroupResponse] = asyncio.get_running_loop().create_future()
            member.syncing = waiting
            if request.member_id == self.leader:
                for row in request.assignments:
                    if row.member_id in self.members:
                        self.members[row.member_id].assignment = bytes(row.assignment)
                self.state = STABLE
                for each in self.members.values():
                    self._synced(each, SyncGroupResponse(assignment=each.assignment))
            return await waiting
        return SyncGroupResponse(assignment=member.assignment)

    def _heartbeat(self, request: HeartbeatRequest) -> int:
        code = self._code(request.member_id, request.generation_id)
        if not code:
            self.members[request.member_id].seen_s = asyncio.get_running_loop().time()
        return code or (ErrorCode.REBALANCE_IN_PROGRESS if self.state == PREPARING else ErrorCode.NONE)

    def _code(self, name: str, generation: int) -> int:
        if name not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if generation == self.generation else ErrorCode.ILLEGAL_GENERATION

    # -- Rebalances --------------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        self.state = PREPARING
        self._until_s = asyncio.get_running_loop().time() + max(each.rebalance_s for each in self.members.values())
        for each in self.members.values():
            self._synced(each, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        self._complete_if_all()

    def _complete_if_all(self) -> None:
        if self.state == PREPARING and all(each.joining is not None for each in self.members.values()):
            self._complete()

    def _complete(self) -> None:
        self.members = {name: each for name, each in self.members.items() if each.joining is not None}
        self.generation += 1
        self.state = COMPLETING if self.members else EMPTY
        if self.leader not in self.members:
            self.leader = next(iter(self.members), "")
        rows = [JoinGroupResponseMember(name, metadata=each.metadata) for name, each in self.members.items()]
        for name, each in self.members.items():
            waiting, each.joining, each.seen_s = each.joining, None, asyncio.get_running_loop().time()
            each.assignment = b""
            assert waiting is not None
            if not waiting.done():
                waiting.set_result(
                    JoinGroupResponse(
                        generation_id=self.generation,
                        protocol_name="v0",
                        leader=self.leader,
                        member_id=name,
                        members=rows if name == self.leader else [],
                    )
                )

    def _synced(self, member: GroupMember, response: SyncGroupResponse) -> None:
        waiting, member.syncing = member.syncing, None
        if waiting is not None and not waiting.done():
            member.seen_s = asyncio.get_running_loop().time()
            waiting.set_result(response)

    def _remove(self, name: str) -> None:
        member = self.members.pop(name, None)
        if member is None:
            return
        self._synced(member, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        if member.joining is not None and not member.joining.done():
            member.joining.set_result(JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        if not self.members:
            self.state = EMPTY
        elif self.state == PREPARING:
            self._complete_if_all()
        else:
            self._prepare()
