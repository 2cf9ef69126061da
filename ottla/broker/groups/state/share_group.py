"""The state of a share group, replayed from its records in the log, and values derived from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.broker.groups.modern.assignment import NOTHING, Assignment, assignment_of, structs_of
from ottla.broker.groups.modern.topics import count_names, narrows
from ottla.broker.groups.state.commits import Commit
from ottla.broker.groups.state.group import GroupType
from ottla.broker.groups.state.member_state import Progress
from ottla.broker.groups.state.modern_group import GroupState, ModernGroup, ModernRecords
from ottla.broker.groups.state.state_partitions import StatePartitions, recorded_state_partitions
from ottla.controller.metadata.topics import TopicsImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.share_group_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    ShareTopicInfo,
)
from ottla.protocol.messages.shared_structs import TopicIdPartitions, TopicPartitions

EMPTY_METADATA = ShareGroupMemberMetadataValue(rack_id=None)


@dataclass(frozen=True, slots=True)
class CurrentAssignment(Progress):
    """The member has its target at once: there is no state between, as in the other kinds."""

    assigned: Assignment = field(default_factory=lambda: NOTHING)

    def value(self) -> ShareGroupCurrentMemberAssignmentValue:
        return ShareGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            assigned_partitions=structs_of(self.assigned, TopicIdPartitions),
        )


@dataclass(slots=True, eq=False)
class Member:
    member_id: str
    metadata: ShareGroupMemberMetadataValue = field(default_factory=lambda: EMPTY_METADATA)
    current: CurrentAssignment = CurrentAssignment()


RECORDS = ModernRecords[Assignment](
    group=ShareGroupMetadataKey,
    group_value=ShareGroupMetadataValue,
    member=ShareGroupMemberMetadataKey,
    assignment_epoch=ShareGroupTargetAssignmentMetadataKey,
    assignment_epoch_value=ShareGroupTargetAssignmentMetadataValue,
    target=ShareGroupTargetAssignmentMemberKey,
    target_value=lambda target: ShareGroupTargetAssignmentMemberValue(structs_of(target, TopicIdPartitions)),
    recorded_target=lambda value: assignment_of(value.topic_partitions),
    current=ShareGroupCurrentMemberAssignmentKey,
    recorded_current=lambda value: CurrentAssignment(
        value.member_epoch, value.previous_member_epoch, assigned=assignment_of(value.assigned_partitions)
    ),
)


def state_partitions_record(group_id: str, state: StatePartitions) -> CoordinatorRecord:
    def info(topic_id: bytes, partitions: list[int]) -> TopicPartitions:
        return TopicPartitions(topic_id, state.names.get(topic_id, ""), partitions)

    value = ShareGroupStatePartitionMetadataValue(
        structs_of(state.initializing, info),
        structs_of(state.initialized, info),
        [ShareTopicInfo(topic_id, state.names.get(topic_id, "")) for topic_id in sorted(state.deleting)],
    )
    return ShareGroupStatePartitionMetadataKey(group_id), value


class ShareGroup(ModernGroup[Member, Assignment]):
    """A share group."""

    type = GroupType.SHARE
    should_expire = False
    states = GroupState.EMPTY, GroupState.STABLE
    records = RECORDS
    other_records = (ShareGroupStatePartitionMetadataKey,)
    new_member = Member
    no_target = NOTHING

    def __init__(self, group_id: str, epoch: int = 0) -> None:
        super().__init__(group_id, epoch, assignment_epoch=0)
        # How many members are subscribed to each name.
        self.names: Counter[str] = Counter()
        self.state_partitions = StatePartitions()
        # ---- soft: the initialized partitions that the target was last compared with
        self.seen_initialized: object = None
        # ---- soft: the metadata and the epoch for which every share partition was found to have state
        self.complete_for: tuple[object, int] | None = None
        # ---- soft: when the initialization of a partition was begun by this coordinator
        self.initializing_since_ms: dict[tuple[bytes, int], int] = {}

    # ---- replay

    def replay_other(self, key: ShareGroupStatePartitionMetadataKey, value: Any) -> None:
        self.state_partitions = StatePartitions() if value is None else recorded_state_partitions(value)

    def _count(self, member: Member, by: int) -> None:
        count_names(self.names, member.metadata.subscribed_topic_names, by)

    def _hold(self, member: Member, by: int) -> None:
        """Several members may have one partition, so that none has to be free."""

    # ---- what follows

    @property
    def state(self) -> GroupState:
        return GroupState.STABLE if self.members else GroupState.EMPTY

    def subscribed_topics(self, changed: Mapping[str, Iterable[str]]) -> set[str]:
        """The names of all members' topics, as if those in `changed` were subscribed to these instead."""
        gone = Counter(
            name
            for member_id in changed
            if member_id in self.members
            for name in self.members[member_id].metadata.subscribed_topic_names
        )
        return {name for name, number in self.names.items() if number > gone[name]}.union(*changed.values())

    def is_narrowed_without(self, member_ids: Iterable[str]) -> bool:
        """Whether these members have a name that no other member is subscribed to."""
        leaving = [self.members[member_id].metadata for member_id in member_ids]
        return narrows(self.names, Counter(name for each in leaving for name in each.subscribed_topic_names))

    def assigned_topics(self) -> dict[bytes, set[int]]:
        """The partitions that the target gives to any member."""
        assigned: dict[bytes, set[int]] = {}
        for target in self.targets.values():
            for topic_id, partitions in target.items():
                assigned.setdefault(topic_id, set()).update(partitions)
        return assigned

    def names_without(self, member_ids: Collection[str], topics: TopicsImage) -> set[str] | None:
        if self.seen_topics is topics and not self.is_narrowed_without(member_ids):
            return None
        return self.subscribed_topics(dict.fromkeys(member_ids, ()))

    # ---- offsets: a share group has none in this topic

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.names

    def validate_offset_commit(self, commit: Commit) -> None:
        raise self._no_offsets()

    def validate_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        raise self._no_offsets()

    def validate_offset_delete(self) -> None:
        raise self._no_offsets()

    def _no_offsets(self) -> KafkaError:
        return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is not a consumer group.")

    # ---- records

    def tombstones(self) -> Iterator[CoordinatorRecord]:
        for member_id in self.members:
            yield from RECORDS.member_tombstones(self.group_id, member_id)
        yield RECORDS.assignment_epoch(self.group_id), None
        yield ShareGroupStatePartitionMetadataKey(self.group_id), None
        yield RECORDS.group(self.group_id), None


def new_share_group(group_id: str) -> ShareGroup:
    """A share group is at the epoch after this one when its first member has joined, as in Kafka."""
    return ShareGroup(group_id, epoch=1)
