"""The target assignment of a group: the assignor computes it, and records hold its changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.broker.groups.modern import range, uniform
from ottla.broker.groups.modern.assignment import NOTHING, Assignment, Assignor, Subscriber
from ottla.broker.groups.modern.topics import partition_counts, topic_ids
from ottla.broker.groups.state.consumer_group import RECORDS, ConsumerGroup
from ottla.broker.groups.state.consumer_member import ResolvedRegex, topics_of
from ottla.broker.groups.target import WORK_ON_LOOP_MAX, target_records
from ottla.controller.metadata.topics import TopicsImage
from ottla.protocol.internal_topics.consumer_group_records import ConsumerGroupMemberMetadataValue

#: The server's assignors by their names in requests.
ASSIGNORS: Mapping[str, Assignor] = {"uniform": uniform.assign, "range": range.assign}


class Input(NamedTuple):
    """The input of a new target for `epoch`: nothing of it changes, so a worker may read it."""

    group_id: str
    epoch: int
    metadata: Mapping[str, ConsumerGroupMemberMetadataValue]
    targets: Mapping[str, Assignment]
    regexes: Mapping[str, ResolvedRegex]
    topics: TopicsImage
    assignor: str


def input_of(group: ConsumerGroup, topics: TopicsImage, default_assignor: str) -> Input:
    metadata = {member.member_id: member.metadata for member in group.members.values()}
    assignor = group.assignor_name(default_assignor)
    return Input(group.group_id, group.epoch, metadata, group.targets.copy(), group.regexes.copy(), topics, assignor)


def work_of(group: ConsumerGroup, topics: TopicsImage) -> int:
    """Returns how much there is to assign: names in subscriptions and, unless these are too many already, partitions."""
    metadata = [member.metadata for member in group.members.values()]
    names = sum(len(each.subscribed_topic_names) for each in metadata)
    names += sum(len(group.regexes[x].topics) * n for x, n in group.expressions.items() if x in group.regexes)
    if names > WORK_ON_LOOP_MAX:
        return names
    return names + sum(partition_counts(topics, topic_ids(topics, group.subscribed_topics({}))).values())


def new_target(group: Input, now_ms: int) -> list[CoordinatorRecord]:
    """Returns the records of a new target."""
    ids_of: dict[tuple[str, ...], frozenset[bytes]] = {}
    members = {}
    for member_id, metadata in group.metadata.items():
        subscription = (metadata.subscribed_topic_regex or "", *metadata.subscribed_topic_names)
        if subscription not in ids_of:
            ids_of[subscription] = topic_ids(group.topics, topics_of(metadata, group.regexes))
        members[member_id] = Subscriber(
            ids_of[subscription], group.targets.get(member_id, NOTHING), metadata.instance_id
        )
    subscribed = frozenset[bytes]().union(*ids_of.values())
    targets = ASSIGNORS[group.assignor](members, partition_counts(group.topics, subscribed))
    return target_records(group, targets, RECORDS, group.assignor, now_ms)
