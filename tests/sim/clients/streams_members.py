"""Members of a streams group (KIP-1071): heartbeats with a topology, tasks that they close and take up, and leaving.

Invariants 37, 38 and 42 in their terms: an active task has one owner in a member epoch and at a time, a process has a task once, epochs
never fall, and in the end every task is active once and has its standby in another process.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.shared_structs import KeyValue, Subtopology, TaskIds, TopicInfo
from ottla.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Topology
from tests.histories import Violation
from tests.sim.clients.connection import BACKOFF_SECONDS, Client, Unreachable
from tests.sim.clients.consumer_members import (
    FENCED_SECONDS_MIN,
    HEARTBEAT_SECONDS,
    JOINING,
    LEAVING,
    REBALANCE_TIMEOUT_MS,
    epoch_of,
)
from tests.sim.clients.group import GROUP

#: How often a heartbeat has an epoch that ended long ago.
REPEATS = 0.05
#: subtopology and partition
Task = tuple[str, int]
STANDBY_REPLICAS = 1


class Held(NamedTuple):
    process: str
    active: frozenset[Task]
    standby: frozenset[Task]
    #: The time since which the coordinator may have waited for the member.
    since: float


@dataclass
class StreamsGroup:
    """The knowledge that the members of one group share. The application repartitions its source and keeps a store."""

    name: str
    source: str
    partition_count: int
    owners: dict[tuple[int, Task], str] = field(default_factory=dict)
    held: dict[str, Held] = field(default_factory=dict)

    @property
    def tasks(self) -> frozenset[Task]:
        return frozenset((subtopology, index) for subtopology in "01" for index in range(self.partition_count))

    @property
    def topology(self) -> Topology:
        stored = TopicInfo(f"{self.name}-changelog", topic_configs=[KeyValue("cleanup.policy", "compact")])
        moved = f"{self.name}-repartition"
        return Topology(
            0,
            [
                Subtopology("0", [self.source], repartition_sink_topics=[moved]),
                Subtopology("1", state_changelog_topics=[stored], repartition_source_topics=[TopicInfo(moved)]),
            ],
        )

    def given(self, member_id: str, epoch: int, mine: Held) -> None:
        for task in mine.active:
            owner = self.owners.setdefault((epoch, task), member_id)
            if owner != member_id:
                raise Violation("37", f"the active task {task} is {owner}'s and {member_id}'s in epoch {epoch}")
        self.held[member_id] = mine
        now = asyncio.get_running_loop().time()
        for other, its in self.held.items():
            # A member that cannot reach the coordinator may be fenced without knowing it.
            if other != member_id and now - its.since >= FENCED_SECONDS_MIN:
                continue
            if other != member_id and (both := mine.active & its.active):
                raise Violation("37", f"{member_id} is given the active tasks {sorted(both)}, which {other} has")
            if its.process == mine.process and (both := (mine.active & its.standby) | (mine.standby & its.active)):
                raise Violation("37", f"{mine.process} has {sorted(both)} active and as a copy")


class StreamsMember(Client):
    """One member, a thread of a process; it leaves now and then and comes back as another."""

    group: StreamsGroup
    process = ""
    leaves = 0.03

    member_id = ""
    active: frozenset[Task]
    standby: frozenset[Task]
    #: The time at which the last request was sent whose response gave the member everything that the coordinator may wait for.
    _sent: float | None
    #: A response was lost. It may have had an assignment, and no later response repeats it, because Kafka sends the tasks only
    #: when they change. So the coordinator may wait for a step that this member does not know of, and fence it.
    _is_unsure = False
    #: The epochs that the member has had since it joined.
    _epochs: list[int]

    def start(self) -> None:
        self._forget(is_new=True)
        super().start()

    async def run(self) -> None:
        while not self.stopping:
            try:
                node = await self.coordinator(self.group.name, GROUP)
                while not self.stopping:
                    await self._beat(node)
                    await asyncio.sleep(HEARTBEAT_SECONDS)
            except Unreachable:
                self._says_all = self._is_unsure = True
                await asyncio.sleep(BACKOFF_SECONDS)

    async def _beat(self, node: int) -> None:
        request = StreamsGroupHeartbeatRequest(self.group.name, self.member_id, self.epoch)
        if self.epoch > JOINING and self.rng.random() < self.leaves:
            request.member_epoch = LEAVING
            self._forget(is_new=True)
            await self.ask_node(node, request)
            return
        if len(self._epochs) > 2 and self.rng.random() < REPEATS:
            request.member_epoch = self._epochs[-3]
            self._judge_repeated(await self.ask_node(node, request))
            return
        if self.epoch == JOINING:
            request.topology, request.process_id = self.group.topology, self.process
            request.rebalance_timeout_ms = REBALANCE_TIMEOUT_MS
        if self._says_all or self._has_changed or self.epoch == JOINING:
            request.active_tasks, request.standby_tasks = _structs(self.active), _structs(self.standby)
            request.warmup_tasks = []
        self._says_all = self._has_changed = False
        before, sent = self.epoch, asyncio.get_running_loop().time()
        self._take(before, sent, await self.ask_node(node, request))

    def _judge_repeated(self, answer: Any) -> None:
        """Judge the response to a heartbeat whose epoch ended before the previous one."""
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.NONE:
            raise Violation("38", f"{self.name} is in epoch {self.epoch}, and is served in {self._epochs[-3]}")

    def _take(self, before: int, sent: float, answer: Any) -> None:
        epoch = epoch_of(answer, self.name, before)
        if epoch is None:
            self._forget(is_new=False)
            return
        self.epoch = epoch
        if answer.active_tasks is not None:
            new = _tasks(answer.active_tasks), _tasks(answer.standby_tasks)
            self._has_changed = new != (self.active, self.standby)
            self.active, self.standby = new
            self.history.note(
                f"{self.name} is in epoch {self.epoch} with {sorted(new[0])} and copies of {sorted(new[1])}"
            )
        if answer.active_tasks is not None or self.epoch > before:
            self._is_unsure = False
        since = sent if self._sent is None else self._sent
        self.group.given(self.member_id, self.epoch, Held(self.process, self.active, self.standby, since))
        if not self._is_unsure:
            self._sent = sent
        if self.epoch not in self._epochs:
            self._epochs.append(self.epoch)

    def _forget(self, *, is_new: bool) -> None:
        self.group.held.pop(self.member_id, None)
        self.epoch, self._says_all, self._has_changed = JOINING, True, False
        self.active = self.standby = frozenset()
        self._sent = None
        self._is_unsure = False
        self._epochs = []
        if is_new:
            self.member_id = str(uuid.UUID(int=self.rng.getrandbits(128)))


def _structs(tasks: frozenset[Task]) -> list[TaskIds]:
    return [
        TaskIds(name, sorted(index for its, index in tasks if its == name)) for name in sorted({t[0] for t in tasks})
    ]


def _tasks(structs: list[TaskIds]) -> frozenset[Task]:
    return frozenset((each.subtopology_id, index) for each in structs for index in each.partitions)


def unsettled(members: list[StreamsMember]) -> str | None:
    """Return the reason why the group is not stable with every task in its place (invariant 42); None if it is."""
    epochs = {member.epoch for member in members}
    if len(epochs) > 1 or JOINING in epochs:
        return f"members are in epochs {sorted(epochs)}"
    group = members[0].group
    active = sorted(task for member in members for task in member.active)
    if active != sorted(group.tasks):
        return f"only {active} are active"
    copied = sorted(task for member in members for task in member.standby)
    # Stateless tasks have nothing to copy.
    wanted = sorted(task for task in group.tasks if task[0] == "1") * min(
        STANDBY_REPLICAS, len({member.process for member in members}) - 1
    )
    return None if copied == wanted else f"copies are of {copied}"
