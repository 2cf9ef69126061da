"""The sticky task assignor: every member gets about as many tasks as any other, and a task stays where its state is.

A task goes to the member that had it, then to one that had it as a standby, then to the least loaded process. Standby tasks
follow in the same way, and never to a process that has the task already: a second copy there would not survive the process.
A process that runs more stream threads (members) carries more. Warm-up tasks are not assigned, as in Kafka 4.3.1. The target is
written as records of the changes only.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from ottla.broker.groups.group_metadata_manager import GroupMetadataManager
from ottla.broker.groups.heartbeats import Plan
from ottla.broker.groups.streams.streams_group import StreamsGroup, TaskSet, TasksTuple


class ByLoad:
    def __init__(self, names: Iterable[tuple[float, str]]) -> None:
        self._heap: list[tuple[float, str]] = []
        for load, name in names:
            self.push(load, name)

    def __bool__(self) -> bool:
        return bool(self._heap)

    def push(self, load: float, name: str) -> None:
        """Add a name. It moves up past larger loads only, not past equal ones."""
        heap = self._heap
        at = len(heap)
        heap.append((load, name))
        while at and load < heap[(parent := (at - 1) // 2)][0]:
            heap[at], at = heap[parent], parent
        heap[at] = load, name

    def pop(self) -> str:
        """Remove and return the first name. The last one takes its place and moves down past smaller loads only, to the left
        side if both are equal.
        """
        heap = self._heap
        first, last = heap[0], heap.pop()
        at, child, size = 0, 1, len(heap)
        while child < size:
            if child + 1 < size and heap[child + 1][0] < heap[child][0]:
                child += 1
            if last[0] <= heap[child][0]:
                break
            heap[at], at, child = heap[child], child, 2 * child + 1
        if heap:
            heap[at] = last
        return first[1]


log = logging.getLogger(__name__)

Task: TypeAlias = tuple[str, int]


class ThreadOfProcess(NamedTuple):
    """A member as the assignor sees it: its process, and its tasks in the last target."""

    process_id: str
    current: TasksTuple = TasksTuple()


class SubtopologyTasks(NamedTuple):
    """The number of tasks of a subtopology, and whether they have state that standby tasks could copy."""

    tasks: int
    is_stateful: bool


def assign(
    members: Mapping[str, ThreadOfProcess], subtopologies: Mapping[str, SubtopologyTasks], standby_replicas: int
) -> dict[str, TasksTuple]:
    """Return each member's target. Without members there is nothing to assign."""
    if not members:
        return {}
    assignment = _Assignment(members, subtopologies, standby_replicas)
    assignment.assign_active()
    if standby_replicas > 0:
        assignment.assign_standby()
    return {
        member_id: TasksTuple(_compact(assignment.active[member_id]), _compact(assignment.standby[member_id]))
        for member_id in members
    }


class _Quota:
    """The number of tasks that a member may keep: the average of the remaining tasks over the members that are not full yet."""

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks, self._members = tasks, members
        self.per_member = -(-tasks // members)

    def count(self, tasks_of_member: int) -> None:
        """A member has this many tasks now."""
        if tasks_of_member == self.per_member:
            self._members -= 1
            self._tasks -= tasks_of_member
            self.per_member = -(-self._tasks // self._members) if self._members else 0


class _Process:
    def __init__(self) -> None:
        self.members: list[str] = []
        #: The members in the order of their load. It is built at the first use, and built again after a member has got a former task back.
        self.by_load: ByLoad | None = None
        self.tasks: set[Task] = set()
        self.load = 0

    @property
    def load_per_member(self) -> float:
        return self.load / len(self.members)


class _Assignment:
    def __init__(
        self,
        members: Mapping[str, ThreadOfProcess],
        subtopologies: Mapping[str, SubtopologyTasks],
        standby_replicas: int,
    ) -> None:
        self._standby_replicas = standby_replicas
        self._active_tasks = [(name, p) for name, each in subtopologies.items() for p in range(each.tasks)]
        self._stateful_tasks = [task for task in self._active_tasks if subtopologies[task[0]].is_stateful]
        self._active_quota = _Quota(len(self._active_tasks), len(members))
        all_tasks = len(self._active_tasks) + len(self._stateful_tasks) * standby_replicas
        self._quota = _Quota(all_tasks, len(members))
        self._process_of = {member_id: members[member_id].process_id for member_id in sorted(members)}
        self._processes: dict[str, _Process] = {}
        self.active: dict[str, set[Task]] = {member_id: set() for member_id in members}
        self.standby: dict[str, set[Task]] = {member_id: set() for member_id in members}
        self._loads = dict.fromkeys(members, 0)
        self._active_before: dict[Task, str] = {}
        self._standby_before: dict[Task, list[str]] = {}
        for member_id, process_id in self._process_of.items():
            process = self._processes.setdefault(process_id, _Process())
            process.members.append(member_id)
            self._active_before.update(dict.fromkeys(_listed(members[member_id].current.active), member_id))
            for task in _listed(members[member_id].current.standby):
                self._standby_before.setdefault(task, []).append(member_id)

    # ---- active tasks

    def assign_active(self) -> None:
        # Tasks are sorted by their partition, so that the tasks of one partition stay with the same members until these are
        # full.
        left = sorted(self._active_tasks, key=lambda task: (task[1], task[0]))
        left = [task for task in left if not self._give_back(task, self._active_before.get(task))]
        left = [task for task in left if not self._give_back(task, self._least_loaded(self._standby_before.get(task)))]
        # Whole ranges of one subtopology go to one member at first.
        by_load = self._by_load()
        for task in sorted(left):
            process_id = by_load.pop()
            process = self._processes[process_id]
            self._give_to_least_loaded(task, process, is_active=True)
            by_load.push(process.load_per_member, process_id)

    def _give_back(self, task: Task, member_id: str | None) -> bool:
        """Give the member the active task again, unless it is full."""
        if member_id is None or self._loads[member_id] >= self._active_quota.per_member:
            return False
        self._give_again(task, member_id, is_active=True)
        return True

    def _give_again(self, task: Task, member_id: str, *, is_active: bool) -> None:
        self._give(task, member_id, is_active=is_active)
        self._processes[self._process_of[member_id]].by_load = None

    def _give_to_least_loaded(self, task: Task, process: _Process, *, is_active: bool) -> None:
        if process.by_load is None:
            process.by_load = ByLoad((self._loads[member_id], member_id) for member_id in process.members)
        member_id = process.by_load.pop()
        self._give(task, member_id, is_active=is_active)
        process.by_load.push(self._loads[member_id], member_id)

    def _give(self, task: Task, member_id: str, *, is_active: bool) -> None:
        process = self._processes[self._process_of[member_id]]
        process.tasks.add(task)
        process.load += 1
        self._loads[member_id] += 1
        (self.active if is_active else self.standby)[member_id].add(task)
        if is_active:
            self._active_quota.count(self._loads[member_id])
        self._quota.count(self._loads[member_id])

    # ---- standby tasks

    def assign_standby(self) -> None:
        left: list[tuple[Task, int]] = []
        for task in sorted(self._stateful_tasks, key=lambda task: (task[1], task[0]), reverse=True):
            for given in range(self._standby_replicas):
                member_id = self._holder_of_state(task)
                if member_id is None:
                    left.append((task, self._standby_replicas - given))
                    break
                self._give_again(task, member_id, is_active=False)
        by_load = self._by_load()
        missing = 0
        for task, replicas in sorted(left, reverse=True):
            given = 0
            while given < replicas and self._give_standby(task, by_load):
                given += 1
            missing += replicas - given
        if missing:
            log.warning(
                "Unable to assign %d standby tasks of %d: there is not enough available capacity. Start application instances"
                " on more machines to maintain the requested number of standby replicas.",
                missing,
                len(self._stateful_tasks) * self._standby_replicas,
            )

    def _holder_of_state(self, task: Task) -> str | None:
        """Return a member that has the task's state from before, is not full, and whose process does not have the task."""
        before = self._active_before.get(task)
        for candidate in (before, self._least_loaded(self._standby_before.get(task), task)):
            if (
                candidate is not None
                and not self._has(candidate, task)
                and self._loads[candidate] < self._quota.per_member
            ):
                return candidate
        return None

    def _give_standby(self, task: Task, by_load: ByLoad) -> bool:
        """Give a standby task to the least loaded process that does not have the task."""
        passed = []
        is_given = False
        while by_load and not is_given:
            passed.append(by_load.pop())
            process = self._processes[passed[-1]]
            if task not in process.tasks:
                self._give_to_least_loaded(task, process, is_active=False)
                is_given = True
        for process_id in reversed(passed):
            by_load.push(self._processes[process_id].load_per_member, process_id)
        return is_given

    # ---- loads

    def _by_load(self) -> ByLoad:
        return ByLoad(
            (self._processes[process_id].load_per_member, process_id) for process_id in sorted(self._processes)
        )

    def _least_loaded(self, member_ids: Iterable[str] | None, unless: Task | None = None) -> str | None:
        candidates = [m for m in member_ids or () if unless is None or not self._has(m, unless)]
        return min(candidates, key=self._load, default=None)

    def _load(self, member_id: str) -> tuple[float, int]:
        return self._processes[self._process_of[member_id]].load_per_member, self._loads[member_id]

    def _has(self, member_id: str, task: Task) -> bool:
        return task in self._processes[self._process_of[member_id]].tasks


def _listed(tasks: TaskSet) -> Iterable[Task]:
    return ((subtopology, partition) for subtopology, partitions in tasks.items() for partition in partitions)


def _compact(tasks: Iterable[Task]) -> TaskSet:
    found: dict[str, set[int]] = {}
    for subtopology, partition in tasks:
        found.setdefault(subtopology, set()).add(partition)
    return {subtopology: frozenset(partitions) for subtopology, partitions in found.items()}


STANDBY_REPLICAS = "num.standby.replicas"


def plan(shard: GroupMetadataManager, group: StreamsGroup) -> Plan:
    """Return the target. No member has tasks as long as the topology is not ready."""
    configured = group.configured
    members = {
        member.member_id: ThreadOfProcess(member.metadata.process_id, group.target(member.member_id))
        for member in group.members.values()
    }
    if configured is None or not configured.is_ready or configured.subtopologies is None:
        return Plan(len(members), "sticky", lambda before: dict.fromkeys(members, TasksTuple()))
    subtopologies = {
        name: SubtopologyTasks(each.tasks, each.is_stateful) for name, each in configured.subtopologies.items()
    }
    replicas = int(group.assignment_configs.get(STANDBY_REPLICAS, 0))
    tasks = sum(each.tasks * (1 + each.is_stateful * replicas) for each in subtopologies.values())
    return Plan(len(members) + tasks, "sticky", lambda before: assign(members, subtopologies, replicas))
