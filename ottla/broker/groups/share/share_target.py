"""The target assignment of a share group: the assignor computes it, and records hold its changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.broker.groups.modern.assignment import NOTHING, Assignment, Subscriber
from ottla.broker.groups.modern.simple import assign
from ottla.broker.groups.modern.topics import topic_ids
from ottla.broker.groups.share.share_records import RECORDS, target_record
from ottla.broker.groups.target import changed_targets
from ottla.controller.metadata.topics import TopicsImage
from ottla.protocol.internal_topics.share_group_records import ShareGroupMemberMetadataValue


class Input(NamedTuple):
    """The input of a new target for `epoch`: nothing of it changes, so a worker may read it."""

    group_id: str
    epoch: int
    metadata: Mapping[str, ShareGroupMemberMetadataValue]
    targets: Mapping[str, Assignment]
    initialized: Assignment
    topics: TopicsImage


def new_target(group: Input, now_ms: int) -> list[CoordinatorRecord]:
    """Returns the records of a new target."""
    members = {
        member_id: Subscriber(
            topic_ids(group.topics, metadata.subscribed_topic_names), group.targets.get(member_id, NOTHING)
        )
        for member_id, metadata in group.metadata.items()
    }
    records = changed_targets(group, assign(members, group.initialized), target_record, "simple")
    records.append(RECORDS.assignment_epoch_record(group.group_id, group.epoch, now_ms))
    return records
