"""A share group: what its records in the log say, and what follows from that.

Everything here is hard state but what is marked soft. Replay alone changes it, and takes records in any order, as compaction
leaves them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ottla.broker.groups.modern.assignment import NOTHING, Assignment, assignment_of
from ottla.broker.groups.modern.topics import count_names, narrows
from ottla.broker.groups.share.state import GroupState
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.share_group_records import (
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataValue,
)

EMPTY_METADATA = ShareGroupMemberMetadataValue(rack_id=None)


@dataclass(slots=True, eq=False)
class Member:
    member_id: str
    metadata: ShareGroupMemberMetadataValue = field(default_factory=lambda: EMPTY_METADATA)
    epoch: int = 0
    previous_epoch: int = 0
    assigned: Assignment = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StatePartitions:
    """The share partitions of the group that have state at share coordinators, or get or lose it just now."""

    initializing: Assignment = field(default_factory=dict)
    initialized: Assignment = field(default_factory=dict)
    #: Topics whose states are being deleted.
    deleting: frozenset[bytes] = frozenset()
    names: Mapping[bytes, str] = field(default_factory=dict)


class ShareGroup:
    """Made empty."""

    #: None of these groups has static members.
    static_members: Mapping[str, str] = MappingProxyType({})

    def __init__(self, group_id: str, epoch: int = 0) -> None:
        self.group_id = group_id
        self.epoch = epoch
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.assignment_timestamp_ms = 0
        self.members: dict[str, Member] = {}
        # How many members are subscribed to each name.
        self.names: Counter[str] = Counter()
        self.targets: dict[str, Assignment] = {}
        self.state_partitions = StatePartitions()
        # ---- soft
        self.is_assigning = False
        self.rejected_epoch = -1
        # ---- soft: the metadata and the initialized partitions that the target was last compared with
        self.seen_topics: object = None
        self.seen_initialized: object = None
        # ---- soft: the metadata and the epoch for which every share partition was found to have state
        self.complete_for: tuple[object, int] | None = None
        # ---- soft: when the initialization of a partition was begun by this coordinator
        self.initializing_since_ms: dict[tuple[bytes, int], int] = {}

    # ---- replay

    def replay_group(self, value: ShareGroupMetadataValue) -> None:
        self.epoch = value.epoch
        self.metadata_hash = value.metadata_hash

    def replay_member(self, member_id: str, value: ShareGroupMemberMetadataValue | None) -> None:
        member = self.members.pop(member_id, None) if value is None else self._member(member_id)
        if member is None:
            return
        count_names(self.names, member.metadata.subscribed_topic_names, -1)
        if value is not None:
            member.metadata = value
            count_names(self.names, value.subscribed_topic_names, +1)

    def replay_assignment_epoch(self, value: ShareGroupTargetAssignmentMetadataValue | None) -> None:
        self.assignment_epoch = 0 if value is None else value.assignment_epoch
        self.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp

    def replay_target(self, member_id: str, value: ShareGroupTargetAssignmentMemberValue | None) -> None:
        if value is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = assignment_of(value.topic_partitions)

    def replay_current_assignment(self, member_id: str, value: ShareGroupCurrentMemberAssignmentValue | None) -> None:
        if value is None:
            if (member := self.members.get(member_id)) is not None:
                member.epoch = member.previous_epoch = 0
                member.assigned = NOTHING
            return
        member = self._member(member_id)
        member.epoch = value.member_epoch
        member.previous_epoch = value.previous_member_epoch
        member.assigned = assignment_of(value.assigned_partitions)

    def replay_state_partitions(self, value: ShareGroupStatePartitionMetadataValue | None) -> None:
        if value is None:
            self.state_partitions = StatePartitions()
            return
        names = {topic.topic_id: topic.topic_name for topic in value.deleting_topics}
        names |= {topic.topic_id: topic.topic_name for topic in (*value.initializing_topics, *value.initialized_topics)}
        self.state_partitions = StatePartitions(
            assignment_of(value.initializing_topics),
            assignment_of(value.initialized_topics),
            frozenset(topic.topic_id for topic in value.deleting_topics),
            names,
        )

    def _member(self, member_id: str) -> Member:
        member = self.members.get(member_id)
        if member is None:
            member = self.members[member_id] = Member(member_id)
        return member

    # ---- what follows

    @property
    def state(self) -> GroupState:
        return GroupState.STABLE if self.members else GroupState.EMPTY

    def target(self, member_id: str) -> Assignment:
        return self.targets.get(member_id, NOTHING)

    def subscribed_topics(self, changed: Mapping[str, Iterable[str]]) -> set[str]:
        """The names of all members' topics, as if those in `changed` were subscribed to these instead."""
        gone = Counter(
            name
            for member_id in changed
            if member_id in self.members
            for name in self.members[member_id].metadata.subscribed_topic_names
        )
        return {name for name, number in self.names.items() if number > gone[name]}.union(*changed.values())

    def is_narrowed_without(self, member_id: str) -> bool:
        """Whether the member has a name that no other member is subscribed to."""
        return narrows(self.names, Counter(self.members[member_id].metadata.subscribed_topic_names))

    def assigned_topics(self) -> dict[bytes, set[int]]:
        """The partitions that the target gives to any member."""
        assigned: dict[bytes, set[int]] = {}
        for target in self.targets.values():
            for topic_id, partitions in target.items():
                assigned.setdefault(topic_id, set()).update(partitions)
        return assigned

    # ---- requests

    def member(self, member_id: str) -> Member:
        """KafkaError UNKNOWN_MEMBER_ID if there is none."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def validate_delete(self) -> None:
        if self.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")
