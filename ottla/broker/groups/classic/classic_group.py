"""A classic group: its members, and its state as the record in the log has it.

Hard state is what `GroupMetadataValue` holds. `recorded_group` is the fold of the log: a group made from one record,
and from nothing else. `adopt` is what the living coordinator does with the record that it has just appended: the group takes
the state of the record, and only then takes over the state that no record holds (`Member.carry_over`). So a group in memory
cannot differ from the one that the next coordinator loads. Between two records a rebalance changes the membership in memory; if
the coordinator moves meanwhile, the group's state is that of its last record, and the members join again. In the states Empty
and Stable memory and log agree.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import ClassVar

from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.broker.groups.classic.classic_member import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    TRANSITIONS,
    ClassicGroupMember,
    ClassicGroupState,
    Protocols,
)
from ottla.broker.groups.group import (
    OWN_RECORDS,
    Commit,
    Deletion,
    GroupType,
    OffsetExpiration,
    commit_time,
    group_metadata_record,
)
from ottla.controller.metadata.topics import TopicsImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.group_records import GroupMetadataValue, MemberMetadata

CONSUMER_PROTOCOL_TYPE = "consumer"
NO_TIMESTAMP = -1


class ClassicGroup:
    """A classic group; a new one is Empty. A group that only commits offsets ("simple") stays Empty, without a protocol type or a record."""

    type: ClassVar[GroupType] = GroupType.CLASSIC
    should_expire: ClassVar[bool] = True

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state: ClassicGroupState = EMPTY
        self.state_timestamp_ms = NO_TIMESTAMP
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members: dict[str, ClassicGroupMember] = {}
        # group.instance.id -> member id (KIP-345)
        self.static_members: dict[str, str] = {}
        # None if the members are not consumers, or their subscriptions cannot be read.
        self.subscribed_topics: frozenset[str] | None = None
        # ---- soft
        # Ids handed out with MEMBER_ID_REQUIRED that did not come back yet (KIP-394).
        self.pending_members: set[str] = set()
        self.pending_sync_members: set[str] = set()
        self.awaiting_join_count = 0
        # The rebalance under way started from Empty: more members are likely to come (KIP-134).
        self.initial_rebalance = False
        self.new_member_added = False
        self._supporters: dict[str, int] = {}

    # ---- the record

    def adopt(self, value: GroupMetadataValue) -> None:
        """Take the state of a record that the active coordinator has appended; members that were there before keep their soft
        state.
        """
        before = self.members
        self._become(value)
        for member_id, member in self.members.items():
            known = before.get(member_id)
            if known is not None:
                member.carry_over(known, value.protocol)
        self.recount()

    def _become(self, value: GroupMetadataValue) -> None:
        """Take all fields from the record and none from a former member of this id, which may be of an older record."""
        if value.members and value.protocol is None:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"group {self.group_id} has members and no protocol")
        self.members = {recorded.member_id: _recorded_member(recorded, value.protocol) for recorded in value.members}
        self.state = STABLE if self.members else EMPTY
        self.state_timestamp_ms = value.current_state_timestamp
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol_name = value.protocol
        self.leader = value.leader if value.leader in self.members else next(iter(self.members), None)
        self.initial_rebalance = self.new_member_added = False
        self.static_members = {m.group_instance_id: m.member_id for m in self.members.values() if m.group_instance_id}
        self.recount()
        self.subscribed_topics = self.compute_subscribed_topics()

    def value(
        self, *, generation: int, members: Sequence[ClassicGroupMember], assignments: dict[str, bytes], now_ms: int
    ) -> GroupMetadataValue:
        """Return the record of the current generation; without members it is that of an Empty group."""
        name = self.protocol_name if members else None
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=generation,
            protocol=name,
            leader=self.leader if members else None,
            current_state_timestamp=now_ms,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(name),
                    assignment=assignments.get(member.member_id, b""),
                )
                for member in members
            ],
        )

    # ---- states

    def transition(self, state: ClassicGroupState, now_ms: int) -> None:
        assert state in TRANSITIONS[self.state], f"group {self.group_id} goes from {self.state} to {state}"
        self.state = state
        self.state_timestamp_ms = now_ms

    def next_generation(self, now_ms: int) -> None:
        """Choose the protocol, because all members have joined, and wait for the leader's assignment."""
        self.generation += 1
        self.protocol_name = select_protocol(self.members.values())
        self.subscribed_topics = self.compute_subscribed_topics()
        self.transition(COMPLETING_REBALANCE, now_ms)
        self.pending_sync_members.clear()

    # ---- members

    def add(self, member: ClassicGroupMember) -> None:
        assert member.member_id not in self.members
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_members
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self._count(member.protocols, +1)
        self.awaiting_join_count += member.awaiting_join is not None
        self.pending_members.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member, pending or not, if it is there; the leader's place goes to another member."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member.protocols, -1)
            self.awaiting_join_count -= member.awaiting_join is not None
            if member.group_instance_id is not None:
                self.static_members.pop(member.group_instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_members.discard(member_id)
        self.pending_sync_members.discard(member_id)

    def rename(self, old_member_id: str, new_member_id: str) -> ClassicGroupMember:
        """Give a static member the id of its new process. It keeps its assignment, and stays the leader if it was."""
        member = self.members.pop(old_member_id)
        assert member.group_instance_id is not None
        member.member_id = new_member_id
        self.members[new_member_id] = member
        self.static_members[member.group_instance_id] = new_member_id
        self.pending_sync_members.discard(old_member_id)
        if self.leader == old_member_id:
            self.leader = new_member_id
        return member

    def update(
        self, member: ClassicGroupMember, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int
    ) -> None:
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, +1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def has_all_members_joined(self) -> bool:
        return self.awaiting_join_count == len(self.members) and not self.pending_members

    def elect_joined_leader(self) -> bool:
        """Ensure that the leader is among the members that joined; return False if none did."""
        joined = [member.member_id for member in self.members.values() if member.awaiting_join is not None]
        if joined and self.leader not in joined:
            self.leader = joined[0]
        return bool(joined)

    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def validate_member(self, member_id: str, group_instance_id: str | None) -> None:
        """Raise KafkaError UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID for the former holder of an instance id."""
        if group_instance_id is not None:
            holder = self.static_members.get(group_instance_id)
            if holder is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if holder != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    # ---- protocols

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Return True if the present members share one of these protocols."""
        if self.state is EMPTY:
            return bool(protocol_type) and bool(protocols)
        count = len(self.members)
        return self.protocol_type == protocol_type and any(self._supporters.get(n, 0) == count for n, _ in protocols)

    def recount(self) -> None:
        self._supporters = {}
        for member in self.members.values():
            self._count(member.protocols, +1)
        self.awaiting_join_count = sum(member.awaiting_join is not None for member in self.members.values())

    def _count(self, protocols: Protocols, by: int) -> None:
        for name, _ in protocols:
            self._supporters[name] = self._supporters.get(name, 0) + by

    # ---- what it reads

    @property
    def is_empty(self) -> bool:
        return self.state is EMPTY

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def is_subscribed_to(self, topic: str) -> bool:
        """Return True if a member subscribes to the topic. A consumer group with unreadable subscriptions counts as subscribed to every topic."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def compute_subscribed_topics(self) -> frozenset[str] | None:
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        topics: set[str] = set()
        try:
            for member in self.members.values():
                topics.update(subscription_topics(member.metadata(self.protocol_name)))
        except (struct.error, ValueError):
            return None
        return frozenset(topics)

    # ---- offsets

    def validate_offset_commit(self, commit: Commit) -> None:
        """Raise KafkaError where the member may not commit, as Kafka's ClassicGroup."""
        if self.state is DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if commit.epoch < 0 and self.state is EMPTY:
            # An admin client, or a consumer that assigns its partitions by itself.
            return
        if commit.epoch >= 0 or commit.member_id or commit.group_instance_id is not None:
            self.validate_member(commit.member_id, commit.group_instance_id)
            if commit.epoch != self.generation:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        elif not commit.is_transactional and self.state is not EMPTY:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if not commit.is_transactional and self.state is COMPLETING_REBALANCE:
            # The member has the new generation but no assignment yet, so that its commits belong to the old one.
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def validate_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        """Any client may read the offsets, but those of a group that the coordinator has given up."""
        if self.state is DEAD:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)

    def validate_offset_delete(self) -> None:
        if self.state is DEAD:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        if self.state in (STABLE, PREPARING_REBALANCE, COMPLETING_REBALANCE) and not self.uses_consumer_protocol:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def validate_delete(self) -> None:
        if self.state is not EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def deletion_begun(self, topics: TopicsImage) -> Deletion:
        return OWN_RECORDS

    def offset_expiration(self) -> OffsetExpiration:
        if self.protocol_type is None:
            return commit_time
        if self.state is EMPTY:
            # Records before v2 have no time of the state's change.
            empty_since_ms = self.state_timestamp_ms
            return commit_time if empty_since_ms == NO_TIMESTAMP else lambda offset: empty_since_ms
        if self.state is STABLE and self.uses_consumer_protocol and self.subscribed_topics is not None:
            return commit_time
        return None

    def tombstones(self) -> list[CoordinatorRecord]:
        return [group_metadata_record(self.group_id, None)]


def select_protocol(members: Iterable[ClassicGroupMember]) -> str:
    """Return the protocol that all members support and most of them prefer; the first member's choice breaks ties."""
    members = list(members)
    candidates = {name for name, _ in members[0].protocols}
    for member in members[1:]:
        candidates.intersection_update(name for name, _ in member.protocols)
    votes = Counter(member.vote(candidates) for member in members)
    return max(votes, key=lambda name: votes[name])


def subscription_topics(subscription: bytes) -> list[str]:
    """Return the topics of a ConsumerProtocolSubscription, of which every version starts as version 0 does. Malformed bytes raise ValueError."""
    _, count = struct.unpack_from(">hi", subscription)
    topics, position = [], 6
    if count > len(subscription):
        raise ValueError("more topics than bytes")
    for _ in range(count):
        (length,) = struct.unpack_from(">h", subscription, position)
        position += 2
        if length < 0 or position + length > len(subscription):
            raise ValueError("topic beyond the subscription's end")
        topics.append(subscription[position : position + length].decode())
        position += length
    return topics


def recorded_group(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """Return the group of a record, independent of earlier records."""
    group = ClassicGroup(group_id)
    group._become(value)
    return group


def _recorded_member(recorded: MemberMetadata, protocol: str | None) -> ClassicGroupMember:
    return ClassicGroupMember(
        member_id=recorded.member_id,
        group_instance_id=recorded.group_instance_id,
        client_id=recorded.client_id,
        client_host=recorded.client_host,
        # Records of version 0 have no rebalance timeout.
        rebalance_timeout_ms=(
            recorded.session_timeout if recorded.rebalance_timeout == -1 else recorded.rebalance_timeout
        ),
        session_timeout_ms=recorded.session_timeout,
        protocols=((protocol or "", bytes(recorded.subscription)),),
        assignment=bytes(recorded.assignment),
    )
