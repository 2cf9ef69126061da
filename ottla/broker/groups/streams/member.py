"""One member of a streams group, which is one stream thread: what it said of itself, and which tasks it holds. All of it is hard state."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ottla.broker.groups.modern.assignment import structs_with_epochs, with_epochs
from ottla.broker.groups.modern.modern_group import JOINING_EPOCH
from ottla.broker.groups.streams.state import STABLE, UNRELEASED_TASKS, MemberState, member_state
from ottla.broker.groups.streams.tasks import NOTHING_HELD, HeldTasks, Holdings, structs_of, task_set
from ottla.protocol.internal_topics.streams_group_records import (
    CurrentTaskIds,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataValue,
)

#: A member that is new, as Kafka has it: no topology has this epoch.
NEW_METADATA = StreamsGroupMemberMetadataValue(instance_id=None, rack_id=None, topology_epoch=-1)


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    """How far the member has come: StreamsGroupCurrentMemberAssignmentValue."""

    epoch: int = JOINING_EPOCH
    previous_epoch: int = JOINING_EPOCH
    state: MemberState = STABLE
    assigned: Holdings = NOTHING_HELD
    pending_revocation: Holdings = NOTHING_HELD

    def value(self) -> StreamsGroupCurrentMemberAssignmentValue:
        assigned, pending = self.assigned, self.pending_revocation
        return StreamsGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state.value,
            active_tasks=structs_with_epochs(assigned.active, CurrentTaskIds),
            standby_tasks=structs_of(assigned.standby, CurrentTaskIds),
            warmup_tasks=structs_of(assigned.warmup, CurrentTaskIds),
            active_tasks_pending_revocation=structs_with_epochs(pending.active, CurrentTaskIds),
            standby_tasks_pending_revocation=structs_of(pending.standby, CurrentTaskIds),
            warmup_tasks_pending_revocation=structs_of(pending.warmup, CurrentTaskIds),
        )


@dataclass(slots=True, eq=False)
class Member:
    member_id: str
    metadata: StreamsGroupMemberMetadataValue = field(default_factory=lambda: NEW_METADATA)
    current: CurrentAssignment = CurrentAssignment()

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.current.state is STABLE and self.current.epoch == assignment_epoch

    def is_waiting(self, group_epoch: int) -> bool:
        """Whether it needs the coordinator to go on: for a target of this epoch, or for tasks that others have still."""
        state = self.current.state
        return state is UNRELEASED_TASKS or (state is STABLE and self.current.epoch < group_epoch)


def recorded_assignment(value: StreamsGroupCurrentMemberAssignmentValue) -> CurrentAssignment:
    epoch = value.member_epoch
    return CurrentAssignment(
        epoch,
        value.previous_member_epoch,
        member_state(value.state),
        Holdings(_held(value.active_tasks, epoch), task_set(value.standby_tasks), task_set(value.warmup_tasks)),
        Holdings(
            _held(value.active_tasks_pending_revocation, epoch),
            task_set(value.standby_tasks_pending_revocation),
            task_set(value.warmup_tasks_pending_revocation),
        ),
    )


def _held(structs: Iterable[CurrentTaskIds], epoch: int) -> HeldTasks:
    return with_epochs(((each.subtopology_id, each.partitions, each.assignment_epochs) for each in structs), epoch)
