"""The target assignment of a streams group: what the assignor gives each member, in records that say what changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.broker.groups.state.streams_group import RECORDS, StreamsGroup
from ottla.broker.groups.state.streams_member import Tasks
from ottla.broker.groups.streams.assignor import SubtopologyTasks, ThreadOfProcess, assign
from ottla.broker.groups.target import target_records

STANDBY_REPLICAS = "num.standby.replicas"


class Input(NamedTuple):
    """The input of a new target for `epoch`: nothing of it changes, so a worker may read it."""

    group_id: str
    epoch: int
    members: Mapping[str, ThreadOfProcess]
    targets: Mapping[str, Tasks]
    #: None as long as the topology is not ready.
    subtopologies: Mapping[str, SubtopologyTasks] | None
    standby_replicas: int


def input_of(group: StreamsGroup) -> Input:
    configured = group.configured
    subtopologies = None
    if configured is not None and configured.is_ready and configured.subtopologies is not None:
        subtopologies = {
            name: SubtopologyTasks(each.tasks, each.is_stateful) for name, each in configured.subtopologies.items()
        }
    members = {
        member.member_id: ThreadOfProcess(member.metadata.process_id, group.target(member.member_id))
        for member in group.members.values()
    }
    standby_replicas = int(group.assignment_configs.get(STANDBY_REPLICAS, 0))
    return Input(group.group_id, group.epoch, members, group.targets.copy(), subtopologies, standby_replicas)


def work_of(group: Input) -> int:
    """Returns how many tasks there are to assign, with their copies."""
    tasks = (group.subtopologies or {}).values()
    return len(group.members) + sum(each.tasks * (1 + each.is_stateful * group.standby_replicas) for each in tasks)


def new_target(group: Input, now_ms: int) -> list[CoordinatorRecord]:
    """The records of the target of the group's epoch: no member has tasks as long as the topology is not ready."""
    if group.subtopologies is None:
        targets = dict.fromkeys(group.members, Tasks())
    else:
        targets = assign(group.members, group.subtopologies, group.standby_replicas)
    return target_records(group, targets, RECORDS, "sticky", now_ms)
