"""The sticky task assignor: even loads, tasks that stay, and standby tasks in other processes."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from ottla.broker.groups.streams.assignor import SubtopologyTasks, ThreadOfProcess, assign
from ottla.broker.groups.streams.streams_group import TaskSet, TasksTuple

STATEFUL, STATELESS = True, False


def tasks_of(tasks: TaskSet) -> set[tuple[str, int]]:
    return {(name, partition) for name, partitions in tasks.items() for partition in partitions}


def loads(targets: dict[str, TasksTuple]) -> list[int]:
    return sorted(len(tasks_of(target.active)) for target in targets.values())


def threads(**process_of: str) -> dict[str, ThreadOfProcess]:
    return {member_id: ThreadOfProcess(process) for member_id, process in process_of.items()}


def after(members: dict[str, ThreadOfProcess], targets: dict[str, TasksTuple]) -> dict[str, ThreadOfProcess]:
    return {m: each._replace(current=targets.get(m, TasksTuple())) for m, each in members.items()}


def test_ranges_of_each_subtopology_are_shared_evenly() -> None:
    targets = assign(
        threads(a="p", b="q"), {"0": SubtopologyTasks(4, STATELESS), "1": SubtopologyTasks(4, STATEFUL)}, 0
    )
    assert loads(targets) == [4, 4]
    assert not any(target.standby or target.warmup for target in targets.values())


def test_a_process_with_more_threads_gets_more_tasks() -> None:
    targets = assign(threads(a1="p", a2="p", a3="p", b="q"), {"0": SubtopologyTasks(8, STATELESS)}, 0)
    assert loads(targets) == [2, 2, 2, 2]


def test_a_new_member_takes_no_more_than_its_share_and_the_rest_stays() -> None:
    topology = {"0": SubtopologyTasks(6, STATEFUL)}
    members = threads(a="p", b="q")
    before = assign(members, topology, 0)
    now = assign(after(threads(a="p", b="q", c="r"), before), topology, 0)
    assert loads(now) == [2, 2, 2]
    for member_id, target in before.items():
        assert tasks_of(now[member_id].active) < tasks_of(target.active)


def test_the_standby_takes_over_from_a_member_that_is_gone() -> None:
    topology = {"0": SubtopologyTasks(6, STATEFUL)}
    before = assign(threads(a="p", b="q", c="r"), topology, 1)
    members = after(threads(b="q", c="r"), before)
    now = assign(members, topology, 1)
    taken = {m: tasks_of(now[m].active) & tasks_of(before["a"].active) for m in members}
    assert any(taken[member_id] & tasks_of(before[member_id].standby) for member_id in members)
    assert all(tasks_of(before[member_id].active) <= tasks_of(now[member_id].active) for member_id in members)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_changes_each_task_has_one_owner_and_its_copies_are_in_other_processes(seed: int) -> None:
    chance = Random(seed)
    targets: dict[str, TasksTuple] = {}
    for step in range(10):
        processes = {f"m{index}": chance.choice("pqrs") for index in range(chance.randint(1, 8))}
        topology = {
            str(index): SubtopologyTasks(chance.randint(1, 7), chance.random() < 0.7)
            for index in range(chance.randint(1, 4))
        }
        replicas = chance.randint(0, 2)
        targets = assign(after(threads(**processes), targets), topology, replicas)
        every = {(name, p) for name, each in topology.items() for p in range(each.tasks)}
        owners = Counter(task for target in targets.values() for task in tasks_of(target.active))
        assert owners == dict.fromkeys(every, 1), step
        where: Counter[tuple[str, str, int]] = Counter()
        copies: Counter[tuple[str, int]] = Counter()
        for member_id, target in targets.items():
            copies.update(tasks_of(target.standby))
            where.update((processes[member_id], *task) for kind in target for task in tasks_of(kind))
        assert set(where.values()) <= {1}, "a process has a task twice"
        most = min(replicas, len(set(processes.values())) - 1)
        stateful = {task for task in every if topology[task[0]].is_stateful}
        assert copies == Counter(dict.fromkeys(stateful, most) if most else {}), step


def test_a_copy_goes_to_the_one_of_equally_loaded_processes_that_kafka_chooses() -> None:
    """Apache Kafka 4.3.1 gave these targets (streams groups with one standby replica, members that join one after another)."""
    topology = {"0": SubtopologyTasks(4, STATELESS), "1": SubtopologyTasks(4, STATEFUL)}
    targets: dict[str, TasksTuple] = {}
    for members in ("a", "ac", "acb"):
        targets = assign(after(threads(**{m: f"process-{m}" for m in members}), targets), topology, 1)
    assert {m: set(target.standby.get("1", ())) for m, target in targets.items()} == {"a": {2}, "b": {0}, "c": {1, 3}}


def test_a_task_goes_to_the_one_of_two_equally_loaded_processes_that_kafka_chooses() -> None:
    """A member joins after its source topic has grown from 2 to 5 partitions. Apache Kafka 4.3.1 gave this target."""
    before = assign(threads(c="q"), {"0": SubtopologyTasks(2, STATELESS)}, 0)
    targets = assign(after(threads(a="p", c="q"), before), {"0": SubtopologyTasks(5, STATELESS)}, 0)
    assert {m: set(target.active["0"]) for m, target in targets.items()} == {"a": {2, 3}, "c": {0, 1, 4}}


def test_there_is_nothing_to_assign_without_members() -> None:
    assert assign({}, {"0": SubtopologyTasks(3, STATELESS)}, 0) == {}


def test_thousands_of_tasks_and_hundreds_of_threads_of_one_process() -> None:
    members = threads(**{f"m{index}": "p" for index in range(500)})
    assert set(loads(assign(members, {"0": SubtopologyTasks(5_000, STATEFUL)}, 1))) == {10}
