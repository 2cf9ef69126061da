"""Members of a classic consumer group: they join, share the partitions out, send heartbeats, commit what they own, and leave.

Now and then they read other topics, and they go from one assignment protocol to another the way operators do it: each is
restarted with both, and once all have both, with the new one alone. A member that changes keeps its id.

What all members know together (`Group`) is held against the coordinator's answers: one owner of a partition in a generation
(37), generations that grow, no commit of an older one once a newer one is known (38), and no deletion of offsets of a topic
that a member reads (40).
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from ottla.broker.groups.classic.classic_group import subscription_topics
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestTopic
from ottla.protocol.messages.shared_structs import ClassicProtocol, PartitionIndex
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.histories import Violation
from tests.sim.clients.connection import BACKOFF_SECONDS, Client, Unreachable
from tests.sim.clients.group import GROUP
from tests.sim.history import TopicPartition

PROTOCOL_TYPE = "consumer"
#: The steps of a rolling change, each with what the member supports.
ROLLING = (("range",), ("cooperative-sticky", "range"), ("cooperative-sticky",))
SESSION_TIMEOUT_MS, REBALANCE_TIMEOUT_MS = 6_000, 5_000
HEARTBEAT_SECONDS = 1.0
NO_GENERATION = -1
#: The member has to join again; with these two it keeps its id.
KEEPS_ID = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION})


@dataclass
class Group:
    """The knowledge that the members of one group share."""

    name: str
    partitions: list[TopicPartition]
    generation: int = NO_GENERATION  # the newest that any member got from the coordinator
    owners: dict[tuple[int, TopicPartition], str] = field(default_factory=dict)
    # How far the rolling change has come, by the member's name.
    steps: dict[str, int] = field(default_factory=dict)

    @property
    def topics(self) -> list[str]:
        return sorted({topic for topic, _ in self.partitions})

    def next_step(self, name: str) -> int:
        """A member drops the old protocol when all others know the new one, and a new change begins when all are through."""
        step, others = self.steps[name], [s for n, s in self.steps.items() if n != name]
        last = len(ROLLING) - 1
        if step == last:
            return 1 if all(other >= 1 for other in others) else step
        if step == 1 and 0 in others:
            return step
        return step + 1

    def joined(self, member: str, generation: int, assigned: list[TopicPartition]) -> None:
        self.generation = max(self.generation, generation)
        for partition in assigned:
            owner = self.owners.setdefault((generation, partition), member)
            if owner != member:
                raise Violation("37", f"{partition} is owned by {owner} and {member} in generation {generation}")


class Member(Client):
    """One member, which leaves now and then and comes back as another member."""

    group: Group
    leaves = 0.02
    changes = 0.06

    def start(self) -> None:
        self.group.steps[self.name] = 0
        self.topics = self.group.topics
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
            protocols=[
                ClassicProtocol(name=name, metadata=subscription(self.topics))
                for name in ROLLING[self.group.steps[self.name]]
            ],
        )
        answer = await self.ask_node(node, request, REBALANCE_TIMEOUT_MS + 4_000)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        elif self._is_member(answer):
            await self._sync(node, answer)

    async def _sync(self, node: int, joined: Any) -> None:
        self.member_id = joined.member_id
        request = SyncGroupRequest(
            group_id=self.group.name,
            generation_id=joined.generation_id,
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
        )
        if joined.leader == self.member_id:
            readers = {member.member_id: subscription_topics(member.metadata) for member in joined.members}
            request.assignments = [
                SyncGroupRequestAssignment(member_id=member, assignment=json.dumps(assigned).encode())
                for member, assigned in shared_out(self.group.partitions, readers).items()
            ]
        answer = await self.ask_node(node, request, REBALANCE_TIMEOUT_MS + 4_000)
        if self._is_member(answer):
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
        if self.rng.random() < self.changes or (not self.changes and self.topics != self.group.topics):
            self._change()
            return
        if self.rng.random() < 0.05:
            await self._delete_offsets(node)
            return
        if self.assigned and self.rng.random() < 0.3:
            await self._commit(node)
        request = HeartbeatRequest(group_id=self.group.name, generation_id=self.generation, member_id=self.member_id)
        self.is_stable = self._is_member(await self.ask_node(node, request))

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

    def _change(self) -> None:
        """Change the topics or the protocols: the member joins again, with the same id."""
        topics = self.group.topics
        if self.rng.random() < 0.5 or not self.changes:
            self.topics = sorted(self.rng.sample(topics, self.rng.randint(1, len(topics)))) if self.changes else topics
        else:
            self.group.steps[self.name] = self.group.next_step(self.name)
        self.history.note(f"{self.name} reads {self.topics} by {ROLLING[self.group.steps[self.name]]}")
        self._forget(keeps_id=True)

    async def _delete_offsets(self, node: int) -> None:
        """Delete offsets: it is refused for a topic that a member reads (invariant 40), also by a coordinator that knows the members from its log."""
        topic, generation = self.rng.choice(self.topics), self.generation
        rows = [PartitionIndex(partition_index=0)]
        request = OffsetDeleteRequest(
            group_id=self.group.name, topics=[OffsetDeleteRequestTopic(name=topic, partitions=rows)]
        )
        answer = await self.ask_node(node, request)
        is_deleted = not answer.error_code and not answer.topics[0].partitions[0].error_code
        heartbeat = HeartbeatRequest(group_id=self.group.name, generation_id=generation, member_id=self.member_id)
        after = await self.ask_node(node, heartbeat)
        if is_deleted and after.error_code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            raise Violation(
                "40", f"offsets of {topic} are deleted, and {self.name} reads it in generation {generation}"
            )
        self.is_stable = self._is_member(after)

    async def _leave(self, node: int) -> None:
        request = LeaveGroupRequest(group_id=self.group.name, members=[MemberIdentity(member_id=self.member_id)])
        self._forget(keeps_id=False)
        await self.ask_node(node, request)

    def _is_member(self, answer: Any) -> bool:
        """Return whether the coordinator accepts the member; otherwise the request is repeated, or the member joins again."""
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.NONE:
            return True
        if code in KEEPS_ID:
            self._forget(keeps_id=True)
        elif code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._forget(keeps_id=False)
        elif code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            # The coordinator has moved, and its log has only the chosen protocol of each member, as Kafka's log: both protocols
            # are valid.
            self.group.steps[self.name] = 1
            self._forget(keeps_id=True)
        elif not code.retriable:
            raise Violation("38", f"{self.name} was answered {code.name}")
        else:
            raise Unreachable(code.name)
        return False

    def _forget(self, *, keeps_id: bool) -> None:
        self.generation, self.assigned, self.is_stable = NO_GENERATION, [], False
        if not keeps_id:
            self.member_id = ""


def subscription(topics: list[str]) -> bytes:
    """A ConsumerProtocolSubscription v0."""
    body = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + body + b"\xff\xff\xff\xff"


def shared_out(partitions: list[TopicPartition], readers: dict[str, list[str]]) -> dict[str, list[TopicPartition]]:
    """Assign each partition to one of the members that read its topic, in turn."""
    assigned: dict[str, list[TopicPartition]] = {member: [] for member in sorted(readers)}
    for place, partition in enumerate(partitions):
        members = [member for member in assigned if partition[0] in readers[member]]
        if members:
            assigned[members[place % len(members)]].append(partition)
    return assigned


def unsettled(members: list[Member]) -> str | None:
    """Return the reason why the group is not stable with every partition owned (invariant 42); None if it is."""
    generations = {member.generation for member in members}
    if len(generations) > 1 or not all(member.is_stable for member in members):
        return f"members are in generations {sorted(generations)}"
    owned = sorted(partition for member in members for partition in member.assigned)
    return None if owned == sorted(members[0].group.partitions) else f"only {owned} are owned"
