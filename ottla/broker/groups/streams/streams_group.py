"""A streams group: the hard state that its records in the log make, and the soft state that is derived from it.

Hard state is only changed by replay, which takes records in any order, as compaction leaves them. Soft state is at the end of the
list of fields: it is lost when the coordinator moves, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any, NamedTuple, TypeAlias

from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.broker.groups.group import GroupType, TopicPartition
from ottla.broker.groups.modern.assignment import partitions_of, structs_of, structs_with_epochs, with_epochs
from ottla.broker.groups.modern.modern_group import (
    UNKNOWN,
    UNREVOKED,
    CommittingGroup,
    MemberProgress,
    MemberState,
    ModernGroupState,
    ModernRecords,
)
from ottla.broker.groups.streams.topology import ConfiguredTopology, Topology
from ottla.protocol.internal_topics import group_records
from ottla.protocol.messages.shared_structs import KeyValue, TaskIds
from ottla.protocol.slotted import entity, frozen

#: Subtopology id -> partitions. A subtopology without partitions has no entry, so that equal tasks compare equal.
TaskSet: TypeAlias = Mapping[str, frozenset[int]]
#: Subtopology id -> partition -> the epoch at which the member got the task.
HeldTasks: TypeAlias = Mapping[str, Mapping[int, int]]


NO_TASKS: TaskSet = {}
_NONE_HELD: HeldTasks = {}


class TasksTuple(NamedTuple):
    """Tasks without epochs: a target, or those that a member names in its heartbeat."""

    active: TaskSet = NO_TASKS
    standby: TaskSet = NO_TASKS
    warmup: TaskSet = NO_TASKS


class Holdings(NamedTuple):
    """The tasks of a member, as the coordinator knows them."""

    active: HeldTasks = _NONE_HELD
    standby: TaskSet = NO_TASKS
    warmup: TaskSet = NO_TASKS

    @property
    def tasks(self) -> TasksTuple:
        return TasksTuple(partitions_of(self.active), self.standby, self.warmup)

    def has_any_of(self, owned: TasksTuple) -> bool:
        """Return whether the member names one of these tasks in `owned`."""
        return any(
            others.get(subtopology, frozenset()) & partitions
            for some, others in zip(self.tasks, owned, strict=True)
            for subtopology, partitions in some.items()
        )


NOTHING_HELD = Holdings()


def task_set(structs: Iterable[TaskIds | group_records.CurrentTaskIds]) -> TaskSet:
    found: dict[str, frozenset[int]] = {}
    for struct in structs:
        if struct.partitions:
            found[struct.subtopology_id] = found.get(struct.subtopology_id, frozenset()).union(struct.partitions)
    return found


#: The metadata of a new member, as in Kafka: no topology has this epoch.
NEW_METADATA = group_records.StreamsGroupMemberMetadataValue(instance_id=None, rack_id=None, topology_epoch=-1)


@frozen
class CurrentAssignment(MemberProgress):
    """The progress of the member: group_records.StreamsGroupCurrentMemberAssignmentValue."""

    assigned: Holdings = NOTHING_HELD
    pending_revocation: Holdings = NOTHING_HELD

    def value(self) -> group_records.StreamsGroupCurrentMemberAssignmentValue:
        assigned, pending = self.assigned, self.pending_revocation
        return group_records.StreamsGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            # The numbers of the known states in these records begin with 1.
            state=self.state.value + (self.state is not UNKNOWN),
            active_tasks=structs_with_epochs(assigned.active, group_records.CurrentTaskIds),
            standby_tasks=structs_of(assigned.standby, group_records.CurrentTaskIds),
            warmup_tasks=structs_of(assigned.warmup, group_records.CurrentTaskIds),
            active_tasks_pending_revocation=structs_with_epochs(pending.active, group_records.CurrentTaskIds),
            standby_tasks_pending_revocation=structs_of(pending.standby, group_records.CurrentTaskIds),
            warmup_tasks_pending_revocation=structs_of(pending.warmup, group_records.CurrentTaskIds),
        )


@entity
class StreamsGroupMember:
    member_id: str
    metadata: group_records.StreamsGroupMemberMetadataValue = field(default_factory=lambda: NEW_METADATA)
    current: CurrentAssignment = CurrentAssignment()


def recorded_assignment(value: group_records.StreamsGroupCurrentMemberAssignmentValue) -> CurrentAssignment:
    epoch = value.member_epoch
    return CurrentAssignment(
        epoch,
        value.previous_member_epoch,
        MemberState(value.state - 1),
        Holdings(_held(value.active_tasks, epoch), task_set(value.standby_tasks), task_set(value.warmup_tasks)),
        Holdings(
            _held(value.active_tasks_pending_revocation, epoch),
            task_set(value.standby_tasks_pending_revocation),
            task_set(value.warmup_tasks_pending_revocation),
        ),
    )


def _held(structs: Iterable[group_records.CurrentTaskIds], epoch: int) -> HeldTasks:
    return with_epochs(((each.subtopology_id, each.partitions, each.assignment_epochs) for each in structs), epoch)


RECORDS = ModernRecords[TasksTuple](
    group=group_records.StreamsGroupMetadataKey,
    group_value=group_records.StreamsGroupMetadataValue,
    member=group_records.StreamsGroupMemberMetadataKey,
    assignment_epoch=group_records.StreamsGroupTargetAssignmentMetadataKey,
    assignment_epoch_value=group_records.StreamsGroupTargetAssignmentMetadataValue,
    target=group_records.StreamsGroupTargetAssignmentMemberKey,
    target_value=lambda target: group_records.StreamsGroupTargetAssignmentMemberValue(
        *(structs_of(tasks, TaskIds) for tasks in target)
    ),
    recorded_target=lambda value: TasksTuple(
        *map(task_set, (value.active_tasks, value.standby_tasks, value.warmup_tasks))
    ),
    current=group_records.StreamsGroupCurrentMemberAssignmentKey,
    recorded_current=recorded_assignment,
)


def group_record(
    group_id: str, epoch: int, metadata_hash: int, validated_topology_epoch: int, configs: Mapping[str, str]
) -> CoordinatorRecord:
    value = group_records.StreamsGroupMetadataValue(
        epoch=epoch,
        metadata_hash=metadata_hash,
        validated_topology_epoch=validated_topology_epoch,
        last_assignment_configs=[KeyValue(key, configs[key]) for key in sorted(configs)],
    )
    return group_records.StreamsGroupMetadataKey(group_id), value


class StreamsGroup(CommittingGroup[StreamsGroupMember, TasksTuple]):
    """A streams group; a new one has no members and epoch 1: its first member gets epoch 2, if it need not wait for others."""

    type = GroupType.STREAMS
    states = tuple(ModernGroupState)
    records = RECORDS
    other_records = (group_records.StreamsGroupTopologyKey,)
    no_assignment_epoch = -1
    new_member = StreamsGroupMember
    no_target = TasksTuple()

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id, epoch=1, assignment_epoch=1)
        self.validated_topology_epoch = 0
        #: The last settings of the assignor, by names of configs without their prefix.
        self.assignment_configs: Mapping[str, str] = {}
        self.topology: Topology | None = None
        # The holders of active, standby and warm-up tasks: subtopology id and partition -> members that hold the task, or still have to
        # close it.
        self._holders: tuple[dict[tuple[str, int], set[str]], ...] = ({}, {}, {})
        # ---- soft
        self.configured: ConfiguredTopology | None = None
        self.shutdown_requested_by: str | None = None
        self.endpoint_epoch = 0

    # ---- replay

    def replay_group(self, value: group_records.StreamsGroupMetadataValue) -> None:
        super().replay_group(value)
        self.validated_topology_epoch = value.validated_topology_epoch
        self.assignment_configs = {config.key: config.value for config in value.last_assignment_configs or ()}

    def replay_member(self, member_id: str, value: Any) -> None:
        super().replay_member(member_id, value)
        if not self.members:
            self.shutdown_requested_by = None

    def replay_other(self, key: group_records.StreamsGroupTopologyKey, value: Any) -> None:
        self.topology = None if value is None else Topology(value)

    def _count(self, member: StreamsGroupMember, by: int) -> None:
        """Do nothing: the subscription is that of the topology, and does not depend on the members."""

    def _hold(self, member: StreamsGroupMember, by: int) -> None:
        change = self._take if by > 0 else self._release
        change(member.member_id, member.current.assigned)
        change(member.member_id, member.current.pending_revocation)

    def _take(self, member_id: str, holdings: Holdings) -> None:
        for holders, tasks in zip(self._holders, holdings.tasks, strict=True):
            for subtopology, partitions in tasks.items():
                for partition in partitions:
                    holders.setdefault((subtopology, partition), set()).add(member_id)

    def _release(self, member_id: str, holdings: Holdings) -> None:
        for holders, tasks in zip(self._holders, holdings.tasks, strict=True):
            for subtopology, partitions in tasks.items():
                for partition in partitions:
                    members = holders.get((subtopology, partition), set())
                    members.discard(member_id)
                    if not members:
                        holders.pop((subtopology, partition), None)

    # ---- what follows

    @property
    def is_ready(self) -> bool:
        return self.topology is not None and self.topology.epoch == self.validated_topology_epoch

    def is_free_active(self, process_id: str, subtopology: str, partition: int) -> bool:
        """Return whether the task is no member's active one, and the process has no copy of it."""
        active, standby, warmup = (holders.get((subtopology, partition), ()) for holders in self._holders)
        return not active and not self._is_in(process_id, standby) and not self._is_in(process_id, warmup)

    def is_free_copy(self, process_id: str, subtopology: str, partition: int) -> bool:
        """Return whether the process has the task in no form."""
        return not any(self._is_in(process_id, holders.get((subtopology, partition), ())) for holders in self._holders)

    def _is_in(self, process_id: str, member_ids: Iterable[str]) -> bool:
        return any(self.members[member_id].metadata.process_id == process_id for member_id in member_ids)

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether members read the topic; False without members: such a group reads nothing, so its offsets may expire."""
        return bool(self.members) and self.topology is not None and topic in self.topology.subtopology_of

    # ---- requests of members

    def request_shutdown(self, member_id: str) -> None:
        """Every member gets the status until all have left. The first request counts."""
        if self.shutdown_requested_by is None:
            self.shutdown_requested_by = member_id

    def _held_since(self, member: StreamsGroupMember, partition: TopicPartition) -> int | None:
        """Return since when the member holds the partition as one of its active tasks, None if it does not."""
        subtopology = None if self.topology is None else self.topology.subtopology_of.get(partition.topic)
        if subtopology is None:
            return None
        held = (member.current.assigned, member.current.pending_revocation)
        assigned, pending = (each.active.get(subtopology, {}).get(partition.partition) for each in held)
        return pending if assigned is None else assigned

    def release_timeout_ms(self, member: StreamsGroupMember) -> int | None:
        return member.metadata.rebalance_timeout_ms if member.current.state is UNREVOKED else None

    # ---- records

    def next_epoch(self, metadata_hash: int) -> CoordinatorRecord:
        return group_record(
            self.group_id, self.epoch + 1, metadata_hash, self.validated_topology_epoch, self.assignment_configs
        )

    def tombstones(self) -> Iterator[CoordinatorRecord]:
        """Yield the group's tombstones. Its own is the last but one, as in Kafka: the topology of a group that is gone is skipped."""
        for member_id in self.members:
            yield from RECORDS.member_tombstones(self.group_id, member_id)
        yield RECORDS.assignment_epoch(self.group_id), None
        yield RECORDS.group(self.group_id), None
        yield group_records.StreamsGroupTopologyKey(self.group_id), None
