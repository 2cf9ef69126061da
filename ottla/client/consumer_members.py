"""Members of groups: a member by the classic protocol, whatever the group's type, and the two kinds of members that are
consumers.

    classic    join --> sync, by the leader's assignor `range` --> heartbeats --> (a member comes or goes) --> join
    consumer   heartbeat with epoch 0 --> heartbeats, each of which may bring another assignment of the coordinator's (KIP-848)

Both kinds have a member id and a generation, which in the consumer protocol is the member epoch. The metadata of classic
members and the assignments of their leader are bytes for `ClassicMember`: consumers and the registry encode them. This file
finds out which partitions to read; ottla/client/consumer.py reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from ottla.client.cluster import ATTEMPT_MS_MAX, ClusterClient, ask_coordinator
from ottla.client.errors import check
from ottla.client.group_offsets import NO_GENERATION
from ottla.client.partitions import TopicPartition
from ottla.protocol.compile import encode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.control_messages import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_versioned,
)
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.shared_structs import ClassicProtocol, TopicIdPartitions, TopicNamePartitions
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.protocol.primitives import new_uuid, uuid_to_str

#: After these errors the member joins again: with its member id (REJOIN), or as a new member, because the coordinator does not
#: know it any more (FORGOTTEN).
REJOIN = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)
FORGOTTEN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)


class GroupProtocol(NamedTuple):
    """The type of a group and its protocol; times in ms. A member that does not rejoin in `rebalance_ms_max` is left out."""

    protocol_type: str
    name: str
    session_ms: int
    rebalance_ms_max: int


class ClassicMember:
    """One member.

    A request is repeated for `patience_ms` beside the time that its response may take; None means the command's limit.

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
        """Join, and wait for the next generation. Return None if the member has to call this again."""
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
        """Return the assignment, or None if the group has begun its next rebalance.

        `rows` are the assignments that the leader has made.
        """
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
        """Send a heartbeat. Return its error code, which the caller passes to `is_out`."""
        request = HeartbeatRequest(self.group, self.generation, self.id)
        _, code = await self._ask(request, timeout_ms)
        return code

    async def leave(self, reason: str) -> None:
        if self.id:
            members = [MemberIdentity(self.id, None, reason)]
            await self._ask(LeaveGroupRequest(self.group, members=members), ATTEMPT_MS_MAX)

    def is_out(self, code: int) -> bool:
        """Return whether the error means that the member is not in the generation. It has to join again then."""
        if code in FORGOTTEN:
            self.id = ""
        elif code not in REJOIN:
            return False
        self.generation = NO_GENERATION
        return True

    async def _ask(self, request: object, timeout_ms: int) -> tuple[Any, int]:
        return await ask_coordinator(self._cluster, self.group, request, timeout_ms, self._patience_ms)


CLASSIC, CONSUMER = "classic", "consumer"
PROTOCOL = GroupProtocol("consumer", "range", session_ms=45_000, rebalance_ms_max=60_000)
#: The first versions of the embedded messages: this member uses no field of later ones.
EMBEDDED_VERSION = 0
HEARTBEAT_MS = 3_000
JOIN_EPOCH, LEAVE_EPOCH = 0, -1


class MemberBeat(NamedTuple):
    """The response to a heartbeat: an error code that is not retriable, and a new assignment if there is one."""

    code: int
    assigned: list[TopicPartition] | None = None
    message: str | None = None


class GroupMembership(Protocol):
    """The interface to the membership that a consumer of a group needs. All requests raise TimeoutError when time is up."""

    @property
    def id(self) -> str: ...

    @property
    def generation(self) -> int: ...

    @property
    def interval_ms(self) -> int:
        """The time between two heartbeats."""

    @property
    def is_due(self) -> bool:
        """Return whether a heartbeat has to be sent before its interval is over."""

    async def join(self, topics: Sequence[str]) -> list[TopicPartition] | None:
        """Become a member. Return the partitions that it reads first, or None if the member has to call this again."""

    async def heartbeat(self) -> MemberBeat:
        """Send a heartbeat. The caller passes its error code to `is_out`."""

    def is_out(self, code: int) -> bool:
        """Return whether an error means that the member has to join again. Its generation is NO_GENERATION then."""

    async def leave(self, reason: str) -> None: ...


class RangeMember:
    """A member by the classic protocol. If it is the leader, it assigns by `range`."""

    interval_ms = HEARTBEAT_MS
    is_due = False

    def __init__(self, cluster: ClusterClient, group: str, session_ms: int | None = None) -> None:
        """Make a member that has not joined; `session_ms` is its session.timeout.ms."""
        self._cluster = cluster
        self._member = ClassicMember(
            cluster, group, PROTOCOL if session_ms is None else PROTOCOL._replace(session_ms=session_ms)
        )

    @property
    def id(self) -> str:
        return self._member.id

    @property
    def generation(self) -> int:
        return self._member.generation

    async def join(self, topics: Sequence[str]) -> list[TopicPartition] | None:
        joined = await self._member.join(_encoded(ConsumerProtocolSubscription(topics=list(topics))))
        if joined is None:
            return None
        rows = []
        if joined.leader == joined.member_id and not joined.skip_assignment:
            rows = await self._assignments(joined)
        data = await self._member.sync(joined, rows)
        if data is None:
            return None
        self._member.generation = joined.generation_id
        if not data:
            return []
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

    async def heartbeat(self) -> MemberBeat:
        return MemberBeat(await self._member.heartbeat(ATTEMPT_MS_MAX))

    def is_out(self, code: int) -> bool:
        return self._member.is_out(code)

    async def leave(self, reason: str) -> None:
        await self._member.leave(reason)


class HeartbeatMember:
    """A member by the consumer protocol. `assignor` names one of the coordinator's assignors; None means its first."""

    def __init__(self, cluster: ClusterClient, group: str, assignor: str | None = None) -> None:
        self.id = uuid_to_str(new_uuid(cluster.world.rng))
        self.generation = NO_GENERATION
        self.interval_ms = HEARTBEAT_MS
        self._cluster = cluster
        self._group = group
        self._assignor = assignor
        self._topics: list[str] = []
        self._names: dict[bytes, str] = {}
        #: The partitions that the next heartbeat names as the member's; None: they are the same as in the last one.
        self._owned: list[TopicIdPartitions] | None = None

    @property
    def is_due(self) -> bool:
        """Return whether the coordinator does not know yet which partitions the member has taken and given up.

        Other members wait for that.
        """
        return self._owned is not None

    async def join(self, topics: Sequence[str]) -> list[TopicPartition] | None:
        self._topics = list(topics)
        request = ConsumerGroupHeartbeatRequest(
            self._group,
            self.id,
            JOIN_EPOCH,
            rebalance_timeout_ms=PROTOCOL.rebalance_ms_max,
            subscribed_topic_names=self._topics,
            server_assignor=self._assignor,
            topic_partitions=[],
        )
        beat = await self._beat(request)
        if self.is_out(beat.code):
            return None
        check(f"group {self._group}", beat.code, beat.message)
        return beat.assigned or []

    async def heartbeat(self) -> MemberBeat:
        owned, self._owned = self._owned, None
        request = ConsumerGroupHeartbeatRequest(self._group, self.id, self.generation, topic_partitions=owned)
        return await self._beat(request)

    async def _beat(self, request: ConsumerGroupHeartbeatRequest) -> MemberBeat:
        response: ConsumerGroupHeartbeatResponse
        response, code = await ask_coordinator(self._cluster, self._group, request, ATTEMPT_MS_MAX)
        if code:
            return MemberBeat(code, None, response.error_message)
        self.generation, self.interval_ms = response.member_epoch, response.heartbeat_interval_ms
        if response.assignment is None:
            return MemberBeat(code)
        rows = response.assignment.topic_partitions
        if any(row.topic_id not in self._names for row in rows):
            found = (await self._cluster.metadata(self._topics)).topics
            self._names = {topic.topic_id: topic.name or "" for topic in found}
        # The metadata lack a topic that has just been deleted: it is not read, and not owned.
        self._owned = [row for row in rows if row.topic_id in self._names]
        return MemberBeat(code, [(self._names[row.topic_id], index) for row in self._owned for index in row.partitions])

    def is_out(self, code: int) -> bool:
        if code in FORGOTTEN:
            self.generation = NO_GENERATION
        # The response to the next heartbeat has a newer epoch.
        return code in FORGOTTEN or code == ErrorCode.STALE_MEMBER_EPOCH

    async def leave(self, reason: str) -> None:
        if self.generation != NO_GENERATION:
            await self._beat(ConsumerGroupHeartbeatRequest(self._group, self.id, LEAVE_EPOCH))


def member_of(
    protocol: str, cluster: ClusterClient, group: str, assignor: str | None = None, session_ms: int | None = None
) -> GroupMembership:
    """Return a member that has not joined, by the protocol CLASSIC or CONSUMER.

    `assignor` is for CONSUMER (HeartbeatMember), and `session_ms` for CLASSIC: with CONSUMER the broker sets the session
    timeout.
    """
    assert protocol in (CLASSIC, CONSUMER), protocol
    return (
        HeartbeatMember(cluster, group, assignor) if protocol == CONSUMER else RangeMember(cluster, group, session_ms)
    )


def assign_ranges(
    subscribed: Mapping[str, Sequence[str]], counts: Mapping[str, int]
) -> dict[str, ConsumerProtocolAssignment]:
    """Assign by Kafka's `range`: each member gets contiguous partitions of each topic, and the first members get one more."""
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
