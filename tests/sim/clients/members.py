"""Members of a classic consumer group: they join, share the partitions out, send heartbeats, commit what they own, and leave.

What all members know together (`Group`) is held against the coordinator's answers: one owner of a partition in a generation
(37), generations that grow, and no commit of an older one once a newer one is known (38).
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.sim.clients.connection import BACKOFF_SECONDS, Client, Unreachable
from tests.sim.clients.group import GROUP
from tests.sim.history import TopicPartition, Violation

PROTOCOL_TYPE, PROTOCOL = "consumer", "range"
SESSION_TIMEOUT_MS, REBALANCE_TIMEOUT_MS = 6_000, 5_000
HEARTBEAT_SECONDS = 1.0
NO_GENERATION = -1
#: The member has to join anew; with these two it keeps its id.
KEEPS_ID = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION})


@dataclass
class Group:
    """What the members of one group know together."""

    name: str
    partitions: list[TopicPartition]
    generation: int = NO_GENERATION  # the newest that any member was told to be in
    owners: dict[tuple[int, TopicPartition], str] = field(default_factory=dict)

    def joined(self, member: str, generation: int, assigned: list[TopicPartition]) -> None:
        self.generation = max(self.generation, generation)
        for partition in assigned:
            owner = self.owners.setdefault((generation, partition), member)
            if owner != member:
                raise Violation("37", f"{partition} is owned by {owner} and {member} in generation {generation}")


class Member(Client):
    """One member, which leaves now and then and comes back as another."""

    group: Group
    leaves = 0.02

    def start(self) -> None:
        self.member_id = ""
        self.generation = NO_GENERATION
        self.assigned: list[TopicPartition] = []
        self.is_stable = False
        self._committed = 0
        super().start()

    async def run(self) -> None:
        while not self.stopping:
            try:
                node = await self.coordinator(self.group.name, GROUP)
                if self.generation == NO_GENERATION:
                    await self._join(node)
                else:
                    await self._stay(node)
            except Unreachable:
                self.is_stable = False
                await asyncio.sleep(BACKOFF_SECONDS)

    async def _join(self, node: int) -> None:
        request = JoinGroupRequest(
            group_id=self.group.name,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=PROTOCOL, metadata=b"")],
        )
        answer = await self.ask_node(node, request, REBALANCE_TIMEOUT_MS + 4_000)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        elif self._is_told(answer):
            await self._sync(node, answer)

    async def _sync(self, node: int, joined: Any) -> None:
        self.member_id = joined.member_id
        request = SyncGroupRequest(
            group_id=self.group.name,
            generation_id=joined.generation_id,
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL,
        )
        if joined.leader == self.member_id:
            members = sorted(member.member_id for member in joined.members)
            request.assignments = [
                SyncGroupRequestAssignment(
                    member_id=member, assignment=json.dumps(self.group.partitions[place :: len(members)]).encode()
                )
                for place, member in enumerate(members)
            ]
        answer = await self.ask_node(node, request, REBALANCE_TIMEOUT_MS + 4_000)
        if self._is_told(answer):
            self.generation = joined.generation_id
            self.assigned = [(topic, index) for topic, index in json.loads(answer.assignment or b"[]")]
            self.is_stable = True
            self.history.note(f"{self.name} is in generation {self.generation} with {self.assigned}")
            self.group.joined(self.member_id, self.generation, self.assigned)

    async def _stay(self, node: int) -> None:
        await asyncio.sleep(HEARTBEAT_SECONDS)
        if self.rng.random() < self.leaves:
            await self._leave(node)
            return
        if self.assigned and self.rng.random() < 0.3:
            await self._commit(node)
        request = HeartbeatRequest(group_id=self.group.name, generation_id=self.generation, member_id=self.member_id)
        self.is_stable = self._is_told(await self.ask_node(node, request))

    async def _commit(self, node: int) -> None:
        topic, index = self.rng.choice(self.assigned)
        if topic not in self.topic_ids:
            await self.refresh([topic])
            return
        self._committed += 1
        row = OffsetCommitRequestPartition(partition_index=index, committed_offset=self._committed)
        request = OffsetCommitRequest(
            group_id=self.group.name,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=[OffsetCommitRequestTopic(name=topic, topic_id=self.topic_ids[topic], partitions=[row])],
        )
        newest = self.group.generation
        answer = await self.ask_node(node, request)
        code = ErrorCode(answer.topics[0].partitions[0].error_code)
        self.history.note(f"{self.name} commits in generation {self.generation} of {newest} -> {code.name}")
        if code is ErrorCode.NONE and self.generation < newest:
            raise Violation("38", f"{self.name} commits in generation {self.generation}, and there has been {newest}")

    async def _leave(self, node: int) -> None:
        request = LeaveGroupRequest(group_id=self.group.name, members=[MemberIdentity(member_id=self.member_id)])
        self._forget(keeps_id=False)
        await self.ask_node(node, request)

    def _is_told(self, answer: Any) -> bool:
        """Whether the coordinator takes it for a member; otherwise it asks again, or joins anew."""
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.NONE:
            return True
        if code in KEEPS_ID:
            self._forget(keeps_id=True)
        elif code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._forget(keeps_id=False)
        elif not code.retriable:
            raise Violation("38", f"{self.name} was answered {code.name}")
        else:
            raise Unreachable(code.name)
        return False

    def _forget(self, *, keeps_id: bool) -> None:
        self.generation, self.assigned, self.is_stable = NO_GENERATION, [], False
        if not keeps_id:
            self.member_id = ""


def unsettled(members: list[Member]) -> str | None:
    """42: why the group is not stable with every partition owned; None if it is."""
    generations = {member.generation for member in members}
    if len(generations) > 1 or not all(member.is_stable for member in members):
        return f"members are in generations {sorted(generations)}"
    owned = sorted(partition for member in members for partition in member.assigned)
    return None if owned == sorted(members[0].group.partitions) else f"only {owned} are owned"
