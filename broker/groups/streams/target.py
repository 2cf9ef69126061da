"""The target assignment of a streams group: what the assignor gives each member, in records that say what changed."""

from __future__ import annotations

import logging

from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.broker.groups.streams.assignor import SubtopologyTasks, ThreadOfProcess, assign
from ottla.broker.groups.streams.group import StreamsGroup
from ottla.broker.groups.streams.records import assignment_epoch_record, target_record
from ottla.broker.groups.streams.tasks import Tasks

log = logging.getLogger(__name__)

STANDBY_REPLICAS = "num.standby.replicas"


def new_target(group: StreamsGroup, now_ms: int) -> list[CoordinatorRecord]:
    """The records of the target of the group's epoch: without tasks for anyone as long as the topology is not ready."""
    configured = group.configured
    if configured is None or not configured.is_ready or configured.subtopologies is None:
        targets = dict.fromkeys(group.members, Tasks())
    else:
        targets = assign(
            {
                member.member_id: ThreadOfProcess(member.metadata.process_id, group.target(member.member_id))
                for member in group.members.values()
            },
            {name: SubtopologyTasks(each.tasks, each.is_stateful) for name, each in configured.subtopologies.items()},
            int(group.assignment_configs.get(STANDBY_REPLICAS, 0)),
        )
    records = [
        target_record(group.group_id, member_id, target)
        for member_id, target in targets.items()
        if group.targets.get(member_id) != target
    ]
    log.info(
        "[GroupId %s] Computed a new target assignment for epoch %d with 'sticky' assignor: %d members changed",
        group.group_id,
        group.epoch,
        len(records),
    )
    records.append(assignment_epoch_record(group.group_id, group.epoch, now_ms))
    return records
