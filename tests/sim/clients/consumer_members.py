"""Members of a consumer group of the new protocol (KIP-848): heartbeats, what they give up and get, and leaving.

A member says everything after each request without an answer, as clients do. What all members know together (`ConsumerGroup`) is held
against the coordinator's answers: one owner of a partition in an epoch (37), and epochs that never fall (38).
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, field
from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.shared_structs import TopicIdPartitions
from tests.histories import Violation
from tests.sim.clients.connection import BACKOFF_SECONDS, Client, Unreachable
from tests.sim.clients.group import GROUP
from tests.sim.history import TopicPartition

REBALANCE_TIMEOUT_MS = 10_000
HEARTBEAT_SECONDS = 1.0
#: A member may only be fenced after its rebalance timeout, which begins with the coordinator's decision. That decision comes
#: after the previous response, because a response waits until the decision is committed (seed 228).
FENCED_SECONDS_MIN = REBALANCE_TIMEOUT_MS / 1000 - 1
JOINING, LEAVING = 0, -1
#: The member has to give up all partitions and join again.
FENCED = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND})


@dataclass
class ConsumerGroup:
    """The knowledge that the members of one group share."""

    name: str
    partitions: list[TopicPartition]
    owners: dict[tuple[int, TopicPartition], str] = field(default_factory=dict)
    #: By member id, its partitions, and the time since which the coordinator may have waited for it.
    held: dict[str, tuple[list[TopicPartition], float]] = field(default_factory=dict)

    @property
    def topics(self) -> list[str]:
        return sorted({topic for topic, _ in self.partitions})

    def given(self, member_id: str, epoch: int, assigned: list[TopicPartition], since: float) -> None:
        for partition in assigned:
            owner = self.owners.setdefault((epoch, partition), member_id)
            if owner != member_id:
                raise Violation("37", f"{partition} is owned by {owner} and {member_id} in epoch {epoch}")
        now = asyncio.get_running_loop().time()
        self.held[member_id] = assigned, since
        for other, (partitions, waited_since) in self.held.items():
            # A member that cannot reach the coordinator may be fenced without knowing it.
            if other != member_id and now - waited_since < FENCED_SECONDS_MIN and set(partitions) & set(assigned):
                raise Violation("37", f"{member_id} is given {assigned}, and {other} has {partitions}")


def epoch_of(answer: Any, name: str, before: int) -> int | None:
    """Return the epoch of an answer to a heartbeat, None if the member is fenced.

    Raises:
        Unreachable: the coordinator could not serve it.
        Violation: there is another error, or the epoch has fallen.
    """
    code = ErrorCode(answer.error_code)
    if code in FENCED:
        return None
    if code is not ErrorCode.NONE:
        if code.retriable:
            raise Unreachable(code.name)
        raise Violation("38", f"{name} was answered {code.name}: {answer.error_message}")
    if answer.member_epoch < before:
        raise Violation("38", f"{name} was in epoch {before}, and is in {answer.member_epoch}")
    return int(answer.member_epoch)


class ConsumerMember(Client):
    """One member, which leaves now and then and comes back as another member."""

    group: ConsumerGroup
    #: It is subscribed by a regular expression that the coordinator resolves, not by names.
    by_expression = False
    leaves = 0.03

    member_id = ""
    assigned: list[TopicPartition]
    #: The time at which the last answered request was sent.
    _sent: float | None

    def start(self) -> None:
        self._forget(is_new=True)
        super().start()

    async def run(self) -> None:
        while not self.stopping:
            try:
                if not self.topic_ids.keys() >= set(self.group.topics):
                    await self.refresh(self.group.topics)
                if not self.topic_ids.keys() >= set(self.group.topics):
                    raise Unreachable("the node that answered does not know all topics yet")
                node = await self.coordinator(self.group.name, GROUP)
                while not self.stopping:
                    await self._beat(node)
                    await asyncio.sleep(HEARTBEAT_SECONDS)
            except Unreachable:
                self._says_all = True
                await asyncio.sleep(BACKOFF_SECONDS)

    async def _beat(self, node: int) -> None:
        request = ConsumerGroupHeartbeatRequest(self.group.name, self.member_id, self.epoch)
        if self.epoch > JOINING and self.rng.random() < self.leaves:
            request.member_epoch = LEAVING
            self._forget(is_new=True)
            await self.ask_node(node, request)
            return
        if self._says_all:
            request.rebalance_timeout_ms = REBALANCE_TIMEOUT_MS
            request.subscribed_topic_names = [] if self.by_expression else self.group.topics
            request.subscribed_topic_regex = "|".join(self.group.topics) if self.by_expression else ""
        if self._says_all or self._has_changed:
            request.topic_partitions = self._owned()
        self._says_all = self._has_changed = False
        before, sent = self.epoch, asyncio.get_running_loop().time()
        self._take(before, sent, await self.ask_node(node, request))

    def _take(self, before: int, sent: float, answer: Any) -> None:
        epoch = epoch_of(answer, self.name, before)
        if epoch is None:
            self._forget(is_new=False)
            return
        self.epoch = epoch
        if answer.assignment is not None:
            names = {topic_id: name for name, topic_id in self.topic_ids.items()}
            new = [(names[t.topic_id], p) for t in answer.assignment.topic_partitions for p in t.partitions]
            self._has_changed = new != self.assigned
            self.assigned = new
            self.history.note(f"{self.name} is in epoch {self.epoch} with {self.assigned}")
        self.group.given(self.member_id, self.epoch, self.assigned, sent if self._sent is None else self._sent)
        self._sent = sent

    def _owned(self) -> list[TopicIdPartitions]:
        topics: dict[str, list[int]] = {}
        for topic, index in self.assigned:
            topics.setdefault(topic, []).append(index)
        return [TopicIdPartitions(self.topic_ids[topic], indexes) for topic, indexes in topics.items()]

    def _forget(self, *, is_new: bool) -> None:
        self.group.held.pop(self.member_id, None)
        self.epoch, self._says_all, self._has_changed = JOINING, True, False
        self.assigned, self._sent = [], None
        if is_new:
            self.member_id = str(uuid.UUID(int=self.rng.getrandbits(128)))


def unsettled(members: list[ConsumerMember]) -> str | None:
    """Return the reason why the group is not stable with every partition owned (invariant 42); None if it is."""
    epochs = {member.epoch for member in members}
    if len(epochs) > 1 or JOINING in epochs:
        return f"members are in epochs {sorted(epochs)}"
    owned = sorted(partition for member in members for partition in member.assigned)
    return None if owned == sorted(members[0].group.partitions) else f"only {owned} are owned"
