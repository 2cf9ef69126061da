"""The state of a share group, replayed from its records in the log, and values derived from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any, NamedTuple

from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.broker.groups.group import Commit, Deletion, GroupType
from ottla.broker.groups.modern.assignment import NOTHING, Assignment, assignment_of, pairs, structs_of, union, without
from ottla.broker.groups.modern.modern_group import MemberProgress, ModernGroup, ModernGroupState, ModernRecords
from ottla.broker.groups.modern.topics import count_names, narrows
from ottla.controller.metadata.topics import TopicsImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics import group_records
from ottla.protocol.messages.shared_structs import TopicIdPartitions, TopicPartitions
from ottla.protocol.slotted import entity, frozen


@frozen
class StatePartitions:
    """The share partitions that have state at share coordinators, and those that are getting or losing it. The methods return
    the state after a change.
    """

    initializing: Assignment = field(default_factory=dict)
    initialized: Assignment = field(default_factory=dict)
    #: Topics whose states are being deleted.
    deleting: frozenset[bytes] = frozenset()
    names: Mapping[bytes, str] = field(default_factory=dict)

    def begun(self, partitions: Assignment, names: Mapping[bytes, str]) -> StatePartitions:
        """Note that the initialization of these partitions has begun, for the first time or again."""
        return StatePartitions(
            union(self.initializing, partitions),
            without(self.initialized, partitions),
            self.deleting - partitions.keys(),
            {**self.names, **names},
        )

    def ended(self, initialized: Assignment, failed: Assignment, done: Assignment) -> StatePartitions:
        """Return the state after the persister has answered: it has `initialized` some partitions, of which those that are
        `done` count, and has `failed` for others.
        """
        return replace(
            self,
            initializing=without(without(self.initializing, initialized), failed),
            initialized=union(self.initialized, done),
        )

    def deletion_begun(self, topic_ids: Iterable[bytes]) -> StatePartitions:
        """Return the state after the decision to have the states of these topics deleted by the persister."""
        gone = frozenset(topic_ids)
        following = self.without_topics(gone)
        return replace(following, deleting=following.deleting | gone, names=self.names)

    def deletion_ended(self, topic_ids: Iterable[bytes]) -> StatePartitions:
        """Drop the topics whose states the persister has deleted. A topic whose initialization has begun again since is kept."""
        return self.without_topics(self.deleting.intersection(topic_ids))

    def without_topics(self, topic_ids: Iterable[bytes]) -> StatePartitions:
        gone = frozenset(topic_ids)
        return StatePartitions(
            {topic_id: partitions for topic_id, partitions in self.initializing.items() if topic_id not in gone},
            {topic_id: partitions for topic_id, partitions in self.initialized.items() if topic_id not in gone},
            self.deleting - gone,
            {topic_id: name for topic_id, name in self.names.items() if topic_id not in gone},
        )


def recorded_state_partitions(value: group_records.ShareGroupStatePartitionMetadataValue) -> StatePartitions:
    names = {topic.topic_id: topic.topic_name for topic in value.deleting_topics}
    names |= {topic.topic_id: topic.topic_name for topic in (*value.initializing_topics, *value.initialized_topics)}
    return StatePartitions(
        assignment_of(value.initializing_topics),
        assignment_of(value.initialized_topics),
        frozenset(topic.topic_id for topic in value.deleting_topics),
        names,
    )


class Attempt(NamedTuple):
    """The newest initialization of a share partition: when it was begun, and the state epoch that it is for."""

    since_ms: int
    state_epoch: int


EMPTY_METADATA = group_records.ShareGroupMemberMetadataValue(rack_id=None)


@frozen
class CurrentAssignment(MemberProgress):
    """The member has its target at once: there is no state between, as in the other kinds."""

    assigned: Assignment = field(default_factory=lambda: NOTHING)

    def value(self) -> group_records.ShareGroupCurrentMemberAssignmentValue:
        return group_records.ShareGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            assigned_partitions=structs_of(self.assigned, TopicIdPartitions),
        )


@entity
class ShareGroupMember:
    member_id: str
    metadata: group_records.ShareGroupMemberMetadataValue = field(default_factory=lambda: EMPTY_METADATA)
    current: CurrentAssignment = CurrentAssignment()


RECORDS = ModernRecords[Assignment](
    group=group_records.ShareGroupMetadataKey,
    group_value=group_records.ShareGroupMetadataValue,
    member=group_records.ShareGroupMemberMetadataKey,
    assignment_epoch=group_records.ShareGroupTargetAssignmentMetadataKey,
    assignment_epoch_value=group_records.ShareGroupTargetAssignmentMetadataValue,
    target=group_records.ShareGroupTargetAssignmentMemberKey,
    target_value=lambda target: group_records.ShareGroupTargetAssignmentMemberValue(
        structs_of(target, TopicIdPartitions)
    ),
    recorded_target=lambda value: assignment_of(value.topic_partitions),
    current=group_records.ShareGroupCurrentMemberAssignmentKey,
    recorded_current=lambda value: CurrentAssignment(
        value.member_epoch, value.previous_member_epoch, assigned=assignment_of(value.assigned_partitions)
    ),
)


def state_partitions_record(group_id: str, state: StatePartitions) -> CoordinatorRecord:
    def info(topic_id: bytes, partitions: list[int]) -> TopicPartitions:
        return TopicPartitions(topic_id, state.names.get(topic_id, ""), partitions)

    value = group_records.ShareGroupStatePartitionMetadataValue(
        structs_of(state.initializing, info),
        structs_of(state.initialized, info),
        [group_records.ShareTopicInfo(topic_id, state.names.get(topic_id, "")) for topic_id in sorted(state.deleting)],
    )
    return group_records.ShareGroupStatePartitionMetadataKey(group_id), value


class ShareGroup(ModernGroup[ShareGroupMember, Assignment]):
    """A share group."""

    type = GroupType.SHARE
    should_expire = False
    states = ModernGroupState.EMPTY, ModernGroupState.STABLE
    records = RECORDS
    other_records = (group_records.ShareGroupStatePartitionMetadataKey,)
    new_member = ShareGroupMember
    no_target = NOTHING

    def __init__(self, group_id: str, epoch: int = 0) -> None:
        super().__init__(group_id, epoch, assignment_epoch=0)
        # The number of members that are subscribed to each name.
        self.names: Counter[str] = Counter()
        self.state_partitions = StatePartitions()
        # ---- soft: the initialized partitions that the target was last compared with
        self.seen_initialized: object = None
        # ---- soft: the metadata and the epoch for which every share partition was found to have state
        self.complete_for: tuple[object, int] | None = None
        # ---- soft: when the initialization of a partition was begun by this coordinator
        self.attempts: dict[tuple[bytes, int], Attempt] = {}

    # ---- replay

    def replay_other(self, key: group_records.ShareGroupStatePartitionMetadataKey, value: Any) -> None:
        self.state_partitions = StatePartitions() if value is None else recorded_state_partitions(value)

    def _count(self, member: ShareGroupMember, by: int) -> None:
        count_names(self.names, member.metadata.subscribed_topic_names, by)

    def _hold(self, member: ShareGroupMember, by: int) -> None:
        """Several members may have one partition, so that none has to be free."""

    # ---- what follows

    def deletion_begun(self, topics: TopicsImage) -> Deletion:
        """Begin to delete the states of the group's share partitions, which go first, because the group alone knows of them."""
        state = self.state_partitions
        held = {**dict.fromkeys(state.deleting, frozenset[int]()), **union(state.initialized, state.initializing)}
        for topic_id in held:
            topic = topics.by_id(topic_id)
            # The share coordinators delete the states of deleted topics by themselves.
            if topic is None:
                held[topic_id] = frozenset()
            elif topic_id in state.deleting:
                held[topic_id] = frozenset(topic.partitions)
        is_begun = state.initialized or state.initializing
        records = [state_partitions_record(self.group_id, state.deletion_begun(held))] if is_begun else []
        return Deletion(records, pairs(held))

    @property
    def state(self) -> ModernGroupState:
        return ModernGroupState.STABLE if self.members else ModernGroupState.EMPTY

    def subscribed_topics(self, changed: Mapping[str, Iterable[str]]) -> set[str]:
        """Return the names of all members' topics after a change: `changed` has the new topics of some members."""
        gone = Counter(
            name
            for member_id in changed
            if member_id in self.members
            for name in self.members[member_id].metadata.subscribed_topic_names
        )
        return {name for name, number in self.names.items() if number > gone[name]}.union(*changed.values())

    def assigned_topics(self) -> dict[bytes, set[int]]:
        """Return the partitions that the target gives to any member."""
        assigned: dict[bytes, set[int]] = {}
        for target in self.targets.values():
            for topic_id, partitions in target.items():
                assigned.setdefault(topic_id, set()).update(partitions)
        return assigned

    def names_without(self, member_ids: Collection[str], topics: TopicsImage) -> set[str] | None:
        leaving = [self.members[member_id].metadata for member_id in member_ids]
        is_narrowed = narrows(self.names, Counter(name for each in leaving for name in each.subscribed_topic_names))
        if self.seen_topics is topics and not is_narrowed:
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
        yield group_records.ShareGroupStatePartitionMetadataKey(self.group_id), None
        yield RECORDS.group(self.group_id), None
