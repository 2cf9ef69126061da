"""A new process of a static member takes the place of the former one: it has what that one had, at epoch 0."""

from __future__ import annotations

from dataclasses import replace

from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.broker.groups.state.consumer_group import RECORDS, ConsumerGroup, current_record, target_record
from ottla.broker.groups.state.consumer_member import Member
from ottla.broker.groups.state.modern_group import JOINING_EPOCH


def replacement_records(group: ConsumerGroup, former: Member, member_id: str) -> list[CoordinatorRecord]:
    # Each epoch of the new process is after its partitions' assignment, which begins again (KIP-1251).
    assigned = {topic_id: dict.fromkeys(held, JOINING_EPOCH) for topic_id, held in former.current.assigned.items()}
    current = replace(former.current, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH, assigned=assigned)
    return [
        *RECORDS.member_tombstones(group.group_id, former.member_id),
        RECORDS.member_record(group.group_id, member_id, former.metadata),
        target_record(group.group_id, member_id, group.target(former.member_id)),
        current_record(group.group_id, member_id, current),
    ]
