"""A consumer that shares topics with the other members of a group, by the classic protocol or the consumer protocol.

    join --> read and commit --> (a member comes or goes) --> commit --> other partitions --> read and commit ...

Delivery is at least once: offsets are committed every five seconds, before each rebalance and at the end, and only of records
that were given out by an earlier `poll`. Heartbeats are sent by `poll`, therefore a member whose output is stuck for longer
than the session loses its partitions to the others.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

from ottla.client.cluster import ClusterClient, until_answered
from ottla.client.consumer import PARTITION_BYTES_MAX, READ_COMMITTED, READ_UNCOMMITTED, Consumed, Consumer
from ottla.client.consumer_members import GroupMembership, RangeMember
from ottla.client.errors import ClusterError, check, failure
from ottla.client.group_offsets import NO_GENERATION, commit_offsets, committed_offsets
from ottla.client.partitions import TopicPartition
from ottla.client.topics import EARLIEST, list_offsets
from ottla.protocol.errors import ErrorCode

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
        reset: int | None = EARLIEST,
        member: GroupMembership | None = None,
        partition_bytes_max: int = PARTITION_BYTES_MAX,
    ) -> None:
        """Make a member that has not joined, by the classic protocol unless `member` is another one.

        `reset` (topics.EARLIEST or LATEST) is where a partition without a committed offset begins; with None `poll` fails.
        """
        self.group = group
        self.topics = sorted(set(topics))
        self.consumer = Consumer(
            cluster, {}, isolation_level=isolation_level, reset=reset, partition_bytes_max=partition_bytes_max
        )
        self._cluster = cluster
        self._reset = reset
        self._member = member or RangeMember(cluster, group)
        #: The number of assignments so far.
        self.assignments = 0
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
            except ClusterError:
                # If the command ended with an error, that error is the better message. Without a leave, the end of the session
                # has the same effect.
                if fault is None:
                    raise

    async def fetch(self, ends: Mapping[TopicPartition, int] | None = None) -> AsyncIterator[Consumed]:
        """Yield the records of the partitions that the group assigns, until all of these are at `ends`, or for ever."""
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
    def _is_member(self) -> bool:
        return self._member.generation != NO_GENERATION

    async def poll(self) -> list[Consumed]:
        """Return the next records. All records that earlier calls returned count as processed.

        Raises:
            ClusterError: a topic cannot be read, the group's members use other protocols, or no broker has answered for the
            time limit.
        """
        clock = self._cluster.world.clock
        self._processed = dict(self.consumer.positions)
        if not self._is_member:
            await self._join()
        now_ms = clock.mono_ms()
        if now_ms - self._commit_ms >= COMMIT_MS:
            await self.commit()
        if self._member.is_due or now_ms - self._heartbeat_ms >= self._member.interval_ms:
            await self._heartbeat(now_ms)
        return await self.consumer.poll() if self._is_member else []

    def processed(self, place: TopicPartition, offset: int) -> None:
        """Take note that all records of the partition before `offset` have been processed: the next commit has it."""
        self._processed[place] = offset

    async def commit(self) -> None:
        """Commit the processed offsets of the partitions that are assigned now."""
        self._commit_ms = self._cluster.world.clock.mono_ms()
        moved = {place: offset for place, offset in self._processed.items() if offset != self._committed.get(place)}
        if not moved or not self._is_member:
            return

        async def ask() -> tuple[None, int]:
            try:
                await commit_offsets(self._cluster, self.group, moved, self._member.generation, self._member.id)
            except ClusterError as fault:
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
        """Become a member, and begin with the partitions that it is to read."""
        while not self._is_member:
            self._cluster.doing = f"joining group {self.group}"
            assigned = await self._member.join(self.topics)
            if assigned is not None:
                await self._begin(assigned)

    async def _begin(self, assigned: Iterable[TopicPartition]) -> None:
        places = list(assigned)
        stable = self.consumer.isolation_level == READ_COMMITTED
        committed = await committed_offsets(self._cluster, self.group, stable=stable) if places else {}
        self._committed = {place: committed[place] for place in places if place in committed}
        positions = dict(self._committed)
        for name in sorted({name for name, index in places if (name, index) not in committed}):
            indexes = [index for topic, index in places if topic == name and (name, index) not in committed]
            if self._reset is None:
                raise failure(f"group {self.group} at {name}-{indexes[0]}", ErrorCode.OFFSET_OUT_OF_RANGE)
            found = await list_offsets(self._cluster, name, self._reset, indexes)
            positions.update(((name, index), offset) for index, offset in found.items())
        self.consumer.assign(positions)
        self.assignments += 1
        self._processed = dict(positions)
        self._heartbeat_ms = self._commit_ms = self._cluster.world.clock.mono_ms()

    async def _heartbeat(self, now_ms: int) -> None:
        self._heartbeat_ms = now_ms
        code, assigned, message = await self._member.heartbeat()
        if code == ErrorCode.REBALANCE_IN_PROGRESS or assigned is not None:
            await self.commit()
        if assigned is not None:
            await self._begin(assigned)
        if not self._member.is_out(code):
            check(f"group {self.group}", code, message)
