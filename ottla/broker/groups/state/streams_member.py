"""One member of a streams group, which is one stream thread: its metadata, and which tasks it holds. All of it is hard state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from ottla.broker.groups.modern.assignment import structs_with_epochs, with_epochs
from ottla.broker.groups.state.member_state import UNKNOWN, MemberState, Progress, member_state
from ottla.protocol.internal_topics.streams_group_records import (
    CurrentTaskIds,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataValue,
)

#: Subtopology id -> partitions. A subtopology without partitions has no entry, so that equal tasks compare equal.
TaskSet: TypeAlias = Mapping[str, frozenset[int]]
#: Subtopology id -> partition -> the epoch at which the member got the task.
HeldTasks: TypeAlias = Mapping[str, Mapping[int, int]]


NO_TASKS: TaskSet = {}
_NONE_HELD: HeldTasks = {}


class Tasks(NamedTuple):
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
    def tasks(self) -> Tasks:
        return Tasks(partitions_of(self.active), self.standby, self.warmup)

    def has_any_of(self, owned: Tasks) -> bool:
        """Whether the member names one of these."""
        return any(
            others.get(subtopology, frozenset()) & partitions
            for some, others in zip(self.tasks, owned, strict=True)
            for subtopology, partitions in some.items()
        )


NOTHING_HELD = Holdings()


class TaskIds(Protocol):
    """Requests, responses and records have a struct of their own each, with these fields."""

    subtopology_id: str
    partitions: list[int]


StructT = TypeVar("StructT")


def partitions_of(held: HeldTasks) -> TaskSet:
    return {subtopology: frozenset(partitions) for subtopology, partitions in held.items()}


def task_set(structs: Iterable[TaskIds]) -> TaskSet:
    found: dict[str, frozenset[int]] = {}
    for struct in structs:
        if struct.partitions:
            found[struct.subtopology_id] = found.get(struct.subtopology_id, frozenset()).union(struct.partitions)
    return found


def structs_of(tasks: Mapping[str, Iterable[int]], struct: Callable[[str, list[int]], StructT]) -> list[StructT]:
    """The tasks as structs, in the order of subtopologies and partitions: equal tasks have equal bytes."""
    return [struct(subtopology, sorted(tasks[subtopology])) for subtopology in sorted(tasks)]


def is_subset(some: TaskSet, others: TaskSet) -> bool:
    return all(partitions <= others.get(subtopology, frozenset()) for subtopology, partitions in some.items())


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
