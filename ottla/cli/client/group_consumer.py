"""A consumer that shares topics with the other members of a group, by the classic protocol and the assignor `range`.

    join --> sync --> read and commit --> (a member comes or goes) --> join ...

It is at least once: offsets are committed every five seconds, before each rebalance and at the end, and only of records that
were given out by an earlier `poll`. Heartbeats are sent by `poll`, therefore a member whose output is stuck for longer than the
session loses its partitions to the others.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

from ottla.cli.client.classic_member import ClassicMember, GroupProtocol
from ottla.cli.client.cluster import ATTEMPT_MS_MAX, ClusterClient
from ottla.cli.client.consumer import READ_COMMITTED, READ_UNCOMMITTED, Consumed, Consumer
from ottla.cli.client.coordinator_requests import until_answered
from ottla.cli.client.failures import check
from ottla.cli.client.groups import NO_GENERATION, commit_offsets, committed_offsets
from ottla.cli.client.leaders import TopicPartition
from ottla.cli.client.topics import EARLIEST, list_offsets
from ottla.cli.errors import CommandFailed
from ottla.protocol.compile import encode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.control_messages import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_versioned,
)
from ottla.protocol.messages.join_group import JoinGroupResponse
from ottla.protocol.messages.shared_structs import TopicNamePartitions
from ottla.protocol.messages.sync_group import SyncGroupRequestAssignment

PROTOCOL = GroupProtocol("consumer", "range", session_ms=45_000, rebalance_ms_max=60_000)
#: The first versions of the embedded messages: this member has nothing to say in later ones.
EMBEDDED_VERSION = 0
HEARTBEAT_MS = 3_000
COMMIT_MS = 5_000


class GroupConsumer:
    """A member of a group. Use it as a context manager: at its end it commits and leaves."""

    def __init__(
        self,
        cluster: ClusterClient,
        group: str,
        topics: Sequence[str],
        *,
        isolation_level: int = READ_UNCOMMITTED,
        reset: int = EARLIEST,
    ) -> None:
        """Make a member that has not joined. `reset` (topics.EARLIEST or LATEST) is where a partition begins of which the group has no committed offset."""
        self.group = group
        self.topics = sorted(set(topics))
        self.consumer = Consumer(cluster, {}, isolation_level=isolation_level, reset=reset)
        self._cluster = cluster
        self._reset = reset
        self._member = ClassicMember(cluster, group, PROTOCOL)
        self._processed: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._heartbeat_ms = self._commit_ms = 0

    async def __aenter__(self) -> GroupConsumer:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: object) -> None:
        async with self._cluster.limit():
            try:
                await self.commit()
                await self._member.leave("the command has ended")
            except CommandFailed:
                # What ended the command is the better message. Without a leave, the session's end has the same effect.
                if fault is None:
                    raise

    async def fetch(self, ends: Mapping[TopicPartition, int] | None = None) -> AsyncIterator[Consumed]:
        """Records of the partitions that the group assigns: until all that it assigns are at `ends`, or for ever."""
        while True:
            for consumed in await self.poll():
                yield consumed
                self.processed((consumed.topic, consumed.partition), consumed.records[-1].offset + 1)
            positions = self.consumer.positions
            if (
                ends is not None
                and self._is_member
                and all(positions[place] >= ends.get(place, 0) for place in positions)
            ):
                return

    @property
    def generation(self) -> int:
        """The generation whose assignment is read, or NO_GENERATION."""
        return self._member.generation

    @property
    def _is_member(self) -> bool:
        return self._member.generation != NO_GENERATION

    async def poll(self) -> list[Consumed]:
        """Return the next records. All records of the calls before count as processed.

        Raises:
            CommandFailed: a topic cannot be read, the group has other protocols, or no broker has answered for the time limit.
        """
        clock = self._cluster.world.clock
        self._processed = dict(self.consumer.positions)
        if not self._is_member:
            await self._join()
        now_ms = clock.mono_ms()
        if now_ms - self._commit_ms >= COMMIT_MS:
            await self.commit()
        if now_ms - self._heartbeat_ms >= HEARTBEAT_MS:
            self._heartbeat_ms = now_ms
            await self._heartbeat()
        return await self.consumer.poll() if self._is_member else []

    def processed(self, place: TopicPartition, offset: int) -> None:
        """All records of the partition before `offset` have been processed: the next commit has it."""
        self._processed[place] = offset

    async def commit(self) -> None:
        """Commit what has been processed of the partitions that are assigned now."""
        self._commit_ms = self._cluster.world.clock.mono_ms()
        moved = {place: offset for place, offset in self._processed.items() if offset != self._committed.get(place)}
        if not moved or not self._is_member:
            return

        async def ask() -> tuple[None, int]:
            try:
                await commit_offsets(self._cluster, self.group, moved, self._member.generation, self._member.id)
            except CommandFailed as fault:
                if fault.code is None:
                    raise
                return None, fault.code
            return None, ErrorCode.NONE

        _, code = await until_answered(self._cluster, ask)
        if not self._member.is_out(code):
            check(f"offsets of group {self.group}", code)
            self._committed |= moved

    # -- Membership ----------------------------------------------------------------------------------------------------

    async def _join(self) -> None:
        """Become a member of the next generation, and begin with the partitions that it assigns."""
        while not self._is_member:
            self._cluster.doing = f"joining group {self.group}"
            joined = await self._member.join(_encoded(ConsumerProtocolSubscription(topics=self.topics)))
            if joined is None:
                continue
            assigned = await self._sync(joined)
            if assigned is not None:
                self._member.generation = joined.generation_id
                await self._begin(assigned)

    async def _sync(self, joined: JoinGroupResponse) -> list[TopicPartition] | None:
        """Return the assignment; None if the group is in its next rebalance already."""
        rows = []
        if joined.leader == joined.member_id and not joined.skip_assignment:
            rows = await self._assignments(joined)
        data = await self._member.sync(joined, rows)
        if not data:
            return None if data is None else []
        assignment, _ = decode_versioned(ConsumerProtocolAssignment, data, newer_too=True)
        return [(row.topic, index) for row in assignment.assigned_partitions for index in row.partitions]

    async def _assignments(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """Assign as the leader of the group."""
        subscribed = {
            member.member_id: decode_versioned(ConsumerProtocolSubscription, member.metadata, newer_too=True)[0].topics
            for member in joined.members
        }
        names = sorted({name for topics in subscribed.values() for name in topics})
        found = (await self._cluster.metadata(names)).topics if names else []
        counts = {topic.name or "": len(topic.partitions) for topic in found}
        return [
            SyncGroupRequestAssignment(member, _encoded(assignment))
            for member, assignment in assign_ranges(subscribed, counts).items()
        ]

    async def _begin(self, assigned: Iterable[TopicPartition]) -> None:
        places = list(assigned)
        stable = self.consumer.isolation_level == READ_COMMITTED
        committed = await committed_offsets(self._cluster, self.group, stable=stable) if places else {}
        self._committed = {place: committed[place] for place in places if place in committed}
        positions = dict(self._committed)
        for name in sorted({name for name, index in places if (name, index) not in committed}):
            indexes = [index for topic, index in places if topic == name and (name, index) not in committed]
            found = await list_offsets(self._cluster, name, self._reset, indexes)
            positions.update(((name, index), offset) for index, offset in found.items())
        self.consumer.assign(positions)
        self._processed = dict(positions)
        self._heartbeat_ms = self._commit_ms = self._cluster.world.clock.mono_ms()

    async def _heartbeat(self) -> None:
        code = await self._member.heartbeat(ATTEMPT_MS_MAX)
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            await self.commit()
        if not self._member.is_out(code):
            check(f"group {self.group}", code)


def assign_ranges(
    subscribed: Mapping[str, Sequence[str]], counts: Mapping[str, int]
) -> dict[str, ConsumerProtocolAssignment]:
    """Assign by Kafka's `range`: of each topic, contiguous partitions to its members in their order; the first get one more."""
    assigned = {member: ConsumerProtocolAssignment() for member in subscribed}
    for topic, count in sorted(counts.items()):
        members = sorted(member for member, topics in subscribed.items() if topic in topics)
        each, more = divmod(count, len(members)) if members else (0, 0)
        begin = 0
        for number, member in enumerate(members):
            end = begin + each + (number < more)
            if end > begin:
                row = TopicNamePartitions(topic, list(range(begin, end)))
                assigned[member].assigned_partitions.append(row)
            begin = end
    return assigned


def _encoded(message: ConsumerProtocolSubscription | ConsumerProtocolAssignment) -> bytes:
    return EMBEDDED_VERSION.to_bytes(2, "big") + encode(message, EMBEDDED_VERSION)
