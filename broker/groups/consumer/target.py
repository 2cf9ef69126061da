"""The target assignment of a group: the assignor computes it, and records hold its changes."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.broker.groups.consumer.group import ConsumerGroup
from ottla.broker.groups.consumer.records import assignment_epoch_record, target_record
from ottla.broker.groups.modern import range, uniform
from ottla.broker.groups.modern.assignment import Assignor, Subscriber
from ottla.broker.groups.modern.topics import partition_counts, topic_ids
from ottla.controller.metadata.topics import TopicsImage

log = logging.getLogger(__name__)

#: The server's assignors by their names in requests.
ASSIGNORS: Mapping[str, Assignor] = {"uniform": uniform.assign, "range": range.assign}


def new_target(
    group: ConsumerGroup, topics: TopicsImage, default_assignor: str, now_ms: int
) -> list[CoordinatorRecord]:
    """Returns the records of a new target for the current group epoch."""
    ids_of: dict[tuple[str, ...], frozenset[bytes]] = {}
    members = {}
    for member in group.members.values():
        metadata = member.metadata
        subscription = (metadata.subscribed_topic_regex or "", *metadata.subscribed_topic_names)
        if subscription not in ids_of:
            ids_of[subscription] = topic_ids(topics, group.topics_of(metadata))
        members[member.member_id] = Subscriber(
            ids_of[subscription], group.target(member.member_id), metadata.instance_id
        )
    subscribed = frozenset[bytes]().union(*ids_of.values())
    name = group.assignor_name(default_assignor)
    targets = ASSIGNORS[name](members, partition_counts(topics, subscribed))
    records = [
        target_record(group.group_id, member_id, target)
        for member_id, target in targets.items()
        if group.targets.get(member_id) != target
    ]
    log.info(
        "[GroupId %s] Computed a new target assignment for epoch %d with '%s' assignor: %d members changed",
        group.group_id,
        group.epoch,
        name,
        len(records),
    )
    records.append(assignment_epoch_record(group.group_id, group.epoch, now_ms))
    return records
