"""One member of a streams group, which is one stream thread: what it said of itself, and which tasks it holds. All of it is hard state."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ottla.broker.groups.modern.assignment import structs_with_epochs, with_epochs
from ottla.broker.groups.modern.member_state import UNKNOWN, MemberState, Progress, member_state
from ottla.broker.groups.streams.tasks import NOTHING_HELD, HeldTasks, Holdings, structs_of, task_set
from ottla.protocol.internal_topics.streams_group_records import (
    CurrentTaskIds,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataValue,
)

#: A member that is new, as Kafka has it: no topology has this epoch.
NEW_METADATA = StreamsGroupMemberMetadataValue(instance_id=None, rack_id=None, topology_epoch=-1)


@dataclass(frozen=True, slots=True)
class CurrentAssignment(Progress):
    """How far the member has come: StreamsGroupCurrentMemberAssignmentValue."""

    assigned: Holdings = NOTHING_HELD
    pending_revocation: Holdings = NOTHING_HELD

    def value(self) -> StreamsGroupCurrentMemberAssignmentValue:
        assigned, pending = self.assigned, self.pending_revocation
        return StreamsGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=_number(self.state),
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


def recorded_assignment(value: StreamsGroupCurrentMemberAssignmentValue) -> CurrentAssignment:
    epoch = value.member_epoch
    return CurrentAssignment(
        epoch,
        value.previous_member_epoch,
        _state(value.state),
        Holdings(_held(value.active_tasks, epoch), task_set(value.standby_tasks), task_set(value.warmup_tasks)),
        Holdings(
            _held(value.active_tasks_pending_revocation, epoch),
            task_set(value.standby_tasks_pending_revocation),
            task_set(value.warmup_tasks_pending_revocation),
        ),
    )


def _number(state: MemberState) -> int:
    """The numbers of the known states in these records begin with 1."""
    return state.value if state is UNKNOWN else state.value + 1


def _state(number: int) -> MemberState:
    return member_state(number - 1)


def _held(structs: Iterable[CurrentTaskIds], epoch: int) -> HeldTasks:
    return with_epochs(((each.subtopology_id, each.partitions, each.assignment_epochs) for each in structs), epoch)
