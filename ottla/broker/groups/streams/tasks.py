"""Tasks: a partition number in a subtopology, as active, standby or warm-up task; what a member has, and what it shall have.

Active tasks that a member holds carry the epoch at which it got them: its commits count from that epoch on (KIP-1251).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

#: Subtopology id -> partitions. A subtopology without partitions has no entry, so that equal tasks compare equal.
TaskSet: TypeAlias = Mapping[str, frozenset[int]]
#: Subtopology id -> partition -> the epoch at which the member got the task.
HeldTasks: TypeAlias = Mapping[str, Mapping[int, int]]


NO_TASKS: TaskSet = {}
_NONE_HELD: HeldTasks = {}


class Tasks(NamedTuple):
    """Tasks without epochs: a target, or what a member says that it has."""

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
        """Whether the member says that it has one of these."""
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
