"""Members of a share group (KIP-932): heartbeats, share sessions, and records that they accept, release, reject, renew, keep too long or forget.

What the members are answered is held against what all of them know together (`share_ledger.py`). In the end they accept whatever comes,
until nothing is left.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ottla.broker.share.in_flight import AcknowledgeType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import share_acknowledge, share_fetch
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.messages.shared_structs import AcknowledgementBatch, AcknowledgePartition, AcknowledgeTopic
from ottla.protocol.records.batch import iter_batches
from tests.histories import Violation
from tests.sim.clients.connection import BACKOFF_SECONDS, Client, Unreachable
from tests.sim.clients.consumer_members import HEARTBEAT_SECONDS, JOINING, LEAVING, epoch_of
from tests.sim.clients.group import GROUP
from tests.sim.clients.share_ledger import Answered, Batch, Lock, Session, ShareLedger
from tests.sim.clients.streams_members import REPEATS
from tests.sim.history import TopicPartition

GROUP_RESOURCE = 32
FETCH_WAIT_MS, MAX_RECORDS, BATCH_SIZE = 300, 12, 4
GAP, ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
#: The session is over, or never existed: the member begins another one.
SESSION_OVER = frozenset(
    {
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)
#: The member does not hold a record (any more), or its leader has not loaded the share partition again.
NOT_HELD = frozenset({ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST})
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@dataclass
class ShareGroup:
    """The knowledge that the members of one group share.

    `leadership` returns the life and the epoch in which a broker leads a partition, None if the cluster knows a newer epoch.
    """

    name: str
    partitions: list[TopicPartition]
    ledger: ShareLedger
    configs: dict[str, str]
    leadership: Callable[[int, TopicPartition], object]
    is_configured: bool = False
    #: No member holds records without an acknowledgement, releases, rejects, forgets or leaves any more.
    is_calm: bool = False


class Todo(NamedTuple):
    """Acknowledgements of one partition that are not sent before a given time."""

    due: float
    partition: TopicPartition
    batches: list[Batch]


@dataclass(eq=False)
class Connected(Session):
    """A session with one broker, and the acknowledgements that its member will send there."""

    node: int = -1
    partitions: set[TopicPartition] = field(default_factory=set)
    todo: list[Todo] = field(default_factory=list)


class ShareMember(Client):
    """One member, which leaves or dies now and then and comes back as another member."""

    group: ShareGroup
    leaves = 0.03
    dies = 0.02
    pause_seconds = 0.4

    member_id = ""

    def start(self) -> None:
        self.sessions: dict[int, Connected] = {}
        self._begin()
        super().start()

    def _begin(self) -> None:
        """Join the group again as a new member."""
        self.member_id = str(uuid.UUID(int=self.rng.getrandbits(128)))
        self.epoch = JOINING
        self._says_all = False
        self.epochs: list[int] = []
        self.assigned: list[TopicPartition] = []
        self._beats_at = 0.0
        self._coordinator: int | None = None
        for session in self.sessions.values():
            self.group.ledger.closed(session)
        self.sessions = {}

    @property
    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def run(self) -> None:
        while not self.stopping and not self.group.is_configured:
            await self._configure()
        while not self.stopping:
            try:
                await self._beat()
            except Unreachable:
                # The lost response may have had the assignment, and only a full request gets it again.
                self._coordinator, self._says_all = None, True
            await self._fetch_all()
            await self.pause(self.pause_seconds)
            if self.epoch > JOINING and not self.group.is_calm:
                await self._end_by_chance()

    async def _configure(self) -> None:
        changes = [AlterableConfig(name=name, value=value) for name, value in self.group.configs.items()]
        resource = AlterConfigsResource(GROUP_RESOURCE, self.group.name, changes)
        try:
            answer = await self.ask_any(IncrementalAlterConfigsRequest([resource]))
        except Unreachable:
            await asyncio.sleep(BACKOFF_SECONDS)
            return
        code = ErrorCode(answer.responses[0].error_code)
        if code is ErrorCode.NONE:
            self.group.is_configured = True
        elif not code.retriable:
            raise Violation("13", f"{self.name} configures its group and is answered {code.name}")

    # -- Membership --------------------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        if self._now < self._beats_at:
            return
        if not self.topic_ids.keys() >= {topic for topic, _ in self.group.partitions}:
            await self.refresh(sorted({topic for topic, _ in self.group.partitions}))
            if not self.topic_ids.keys() >= {topic for topic, _ in self.group.partitions}:
                return  # the node that answered does not know a topic yet, and an assignment with it could not be read
        if self._coordinator is None:
            self._coordinator = await self.coordinator(self.group.name, GROUP)
        request = ShareGroupHeartbeatRequest(self.group.name, self.member_id, self.epoch)
        if self._says_all or self.epoch == JOINING:
            request.subscribed_topic_names = sorted({topic for topic, _ in self.group.partitions})
        before = self.epoch
        is_repeated = len(self.epochs) > 2 and self.rng.random() < REPEATS
        if is_repeated:
            request.member_epoch = self.epochs[-3]
        answer = await self.ask_node(self._coordinator, request)
        code = ErrorCode(answer.error_code)
        if is_repeated:
            if code is ErrorCode.NONE:
                raise Violation("38", f"{self.name} is in epoch {before}, and is served in {self.epochs[-3]}")
            return
        epoch = epoch_of(answer, self.name, before)
        if epoch is None:
            self.epoch = JOINING
            self.epochs.clear()
            return
        self.epoch, self._says_all = epoch, False
        if self.epoch not in self.epochs:
            self.epochs.append(self.epoch)
        self._beats_at = self._now + HEARTBEAT_SECONDS
        if answer.assignment is not None:
            names = {topic_id: name for name, topic_id in self.topic_ids.items()}
            self.assigned = [(names[t.topic_id], p) for t in answer.assignment.topic_partitions for p in t.partitions]
            self.history.note(f"{self.name} is in epoch {self.epoch} with {self.assigned}")

    async def _end_by_chance(self) -> None:
        """The member leaves cleanly, or it dies: with its connections, or without them if its host is only cut off."""
        chance = self.rng.random()
        if chance < self.leaves:
            self.history.note(f"{self.name} leaves")
            await asyncio.gather(*(self._close(session) for session in list(self.sessions.values())))
            if self._coordinator is not None:
                request = ShareGroupHeartbeatRequest(self.group.name, self.member_id, LEAVING)
                with suppress(Unreachable):  # its session ends by itself
                    await self.ask_node(self._coordinator, request)
            self._begin()
        elif chance < self.leaves + self.dies:
            self.history.note(f"{self.name} dies")
            if self.rng.random() < 0.5:
                for channel in self._channels.values():
                    channel.close()
                self._channels.clear()
            self._begin()

    # -- Fetching ----------------------------------------------------------------------------------------------------

    async def _fetch_all(self) -> None:
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in self.assigned:
            leader = await self.leader_of(*partition)
            if leader is not None and partition[0] in self.topic_ids:
                by_leader.setdefault(leader, []).append(partition)
        for node, session in list(self.sessions.items()):
            if session.partitions != set(by_leader.get(node, ())):
                await self._close(session)
        await asyncio.gather(*(self._round(leader, wanted) for leader, wanted in by_leader.items()))

    async def _round(self, node: int, wanted: list[TopicPartition]) -> None:
        session = self.sessions.get(node)
        if session is None:
            session = self.sessions[node] = Connected(self.member_id, node=node, partitions=set(wanted))
        due = [todo for todo in session.todo if todo.due <= self._now] if session.epoch else []
        renewing = [todo for todo in due if any(RENEW in types for *_, types in todo.batches)]
        if renewing or (due and self.rng.random() < 0.5):
            due = renewing or due
            session.todo = [todo for todo in session.todo if todo not in due]
            await self._acknowledge(session, merged(due), is_renew=bool(renewing))
            due = []
        if session.is_open:
            session.todo = [todo for todo in session.todo if todo not in due]
            await self._fetch(session, merged(due))

    async def _acknowledge(
        self,
        session: Connected,
        batches: dict[TopicPartition, list[Batch]],
        *,
        is_renew: bool = False,
        epoch: int | None = None,
    ) -> None:
        request = share_acknowledge.ShareAcknowledgeRequest(
            group_id=self.group.name,
            member_id=session.member,
            share_session_epoch=session.epoch if epoch is None else epoch,
            is_renew_ack=is_renew,
            topics=[
                AcknowledgeTopic(
                    self.topic_ids[topic],
                    [AcknowledgePartition(index, [AcknowledgementBatch(*each) for each in some])],
                )
                for (topic, index), some in batches.items()
            ],
        )
        await self._ask(session, request, batches)

    async def _close(self, session: Connected) -> None:
        """Close the session cleanly with its last request, whose response may be lost."""
        if session.epoch and session.is_open:
            await self._acknowledge(session, {}, epoch=-1)
        self._lose(session)

    async def _fetch(self, session: Connected, batches: dict[TopicPartition, list[Batch]]) -> None:
        asked = {key: list[Batch]() for key in (sorted(session.partitions) if session.epoch == 0 else ())} | batches
        request = share_fetch.ShareFetchRequest(
            group_id=self.group.name,
            member_id=session.member,
            share_session_epoch=session.epoch,
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_records=MAX_RECORDS,
            batch_size=BATCH_SIZE,
            share_acquire_mode=int(self.rng.random() < 0.3),
            topics=[
                AcknowledgeTopic(
                    self.topic_ids[topic],
                    [AcknowledgePartition(index, [AcknowledgementBatch(*each) for each in some])],
                )
                for (topic, index), some in asked.items()
            ],
        )
        await self._ask(session, request, batches)

    async def _ask(self, session: Connected, request: Any, batches: dict[TopicPartition, list[Batch]]) -> None:
        """Send a fetch or an acknowledgement; the response goes to the ledger."""
        ledger, node, sent = self.group.ledger, session.node, self._now
        before = {
            partition: self.group.leadership(node, partition) for partition in session.partitions | batches.keys()
        }
        locks = {partition: ledger.acknowledging(session, partition, some) for partition, some in batches.items()}
        is_fetch = isinstance(request, share_fetch.ShareFetchRequest)
        try:
            answer = await self.ask_node(node, request)
        except Unreachable:
            if is_fetch:
                ledger.lost.update(session.partitions)
            self._lose(session)
            await self._moved(session)
            return
        code = ErrorCode(answer.error_code)
        if code is not ErrorCode.NONE:
            if code not in SESSION_OVER and not code.retriable:
                raise Violation("13", f"{self.name} was answered {code.name}: {answer.error_message}")
            self._lose(session)
            await self._moved(session)
            return
        received = self._now
        if request.share_session_epoch >= 0:
            session.epoch += 1
        ledger.went_on(session, sent)
        lock_seconds = answer.acquisition_lock_timeout_ms / 1000
        names = {self.topic_ids[topic]: topic for topic, _ in self.group.partitions}
        has_moved = False
        for topic in answer.responses:
            for row in topic.partitions:
                partition = (names[topic.topic_id], row.partition_index)
                now = self.group.leadership(node, partition)
                answered = Answered(sent, received, None if now != before[partition] or now is None else (node, now))
                if partition in batches:
                    code = ErrorCode(row.acknowledge_error_code if is_fetch else row.error_code)
                    self._judge(session, partition, batches[partition], locks[partition], answered, code, lock_seconds)
                if is_fetch:
                    has_moved |= self._take(session, partition, row, answered, lock_seconds)
        if has_moved:
            await self._moved(session)

    def _judge(
        self,
        session: Connected,
        partition: TopicPartition,
        batches: list[Batch],
        locks: list[Lock | None],
        answered: Answered,
        code: ErrorCode,
        lock_seconds: float,
    ) -> None:
        self.history.note(f"{self.name} acknowledges {partition} {batches} -> {code.name}")
        if code is ErrorCode.NONE:
            self.group.ledger.acknowledged(session, partition, batches, locks, answered, lock_seconds)
        elif code in NOT_HELD:
            self.group.ledger.refused(session, locks, answered, code.name)
        elif not code.retriable:
            raise Violation("13", f"{self.name} acknowledges {batches} of {partition} and is answered {code.name}")

    def _take(
        self, session: Connected, partition: TopicPartition, row: Any, answered: Answered, lock_seconds: float
    ) -> bool:
        """Take a row of a response, and return whether it is an error."""
        code = ErrorCode(row.error_code)
        if code is not ErrorCode.NONE:
            if not code.retriable:
                raise Violation(
                    "13", f"{self.name} fetches {partition} and is answered {code.name}: {row.error_message}"
                )
            return True
        values = {
            record.offset: bytes(record.value or b"").rstrip(b".")
            for batch in iter_batches(row.records or b"")
            if not batch.is_control
            for record in batch.records()
        }
        for one in row.acquired_records:
            offsets = range(one.first_offset, one.last_offset + 1)
            for offset in offsets:
                self.group.ledger.delivered(
                    session, (*partition, offset), values.get(offset), one.delivery_count, answered, lock_seconds
                )
            self.history.note(f"{self.name} has {partition} {offsets} for the {one.delivery_count}th time")
            self._plan(session, partition, offsets, set(values), lock_seconds)
        return False

    def _plan(
        self, session: Connected, partition: TopicPartition, offsets: range, having: set[int], lock_seconds: float
    ) -> None:
        """Decide what happens to the records that were acquired together."""

        def todo(due: float, kinds: list[int]) -> None:
            types = [kind if offset in having else GAP for offset, kind in zip(offsets, kinds, strict=True)]
            types = types[:1] if len(set(types)) == 1 else types
            session.todo.append(Todo(due, partition, [(offsets[0], offsets[-1], types)]))

        now, rng, count = self._now, self.rng, len(offsets)
        chance = 0.0 if self.group.is_calm else rng.random()
        if chance < 0.45:
            todo(now, [ACCEPT] * count)
        elif chance < 0.7:
            todo(now, [rng.choice((ACCEPT, RELEASE, RELEASE, REJECT)) for _ in offsets])
        elif chance < 0.76:
            todo(now, [REJECT] * count)
        elif chance < 0.84:
            session.todo.append(Todo(now, partition, [(offsets[0], offsets[-1], [RENEW])]))
            todo(now + lock_seconds * rng.random(), [ACCEPT] * count)
        elif chance < 0.92:
            todo(now + lock_seconds * rng.uniform(0.5, 2), [ACCEPT] * count)
        # The member forgets the other records: their locks time out.

    def _lose(self, session: Connected) -> None:
        self.group.ledger.closed(session)
        if self.sessions.get(session.node) is session:
            del self.sessions[session.node]

    async def _moved(self, session: Connected) -> None:
        await asyncio.sleep(BACKOFF_SECONDS)
        await self.refresh(sorted({topic for topic, _ in session.partitions}))


def merged(todo: list[Todo]) -> dict[TopicPartition, list[Batch]]:
    """Return the records of each partition, in the order of the offsets."""
    batches: dict[TopicPartition, list[Batch]] = {}
    for each in todo:
        batches.setdefault(each.partition, []).extend(each.batches)
    return {partition: sorted(some) for partition, some in batches.items()}


def unsettled(members: list[ShareMember]) -> str | None:
    """Return the reason why the group is not stable with every partition assigned (invariant 42); None if it is."""
    epochs = {member.epoch for member in members}
    if len(epochs) > 1 or JOINING in epochs:
        return f"members are in epochs {sorted(epochs)}"
    assigned = {partition for member in members for partition in member.assigned}
    return None if assigned == set(members[0].group.partitions) else f"only {sorted(assigned)} are assigned"
