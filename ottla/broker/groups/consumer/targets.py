"""The targets of a consumer group's members: how much there is to assign, and by which assignor.

`heartbeats.assign_if_due` says when they are computed. A worker may do it, so that the computation reads nothing that changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ottla.broker.groups.consumer.consumer_group import ConsumerGroup, ResolvedRegex, topics_of
from ottla.broker.groups.group_metadata_manager import GroupMetadataManager
from ottla.broker.groups.heartbeats import WORK_ON_LOOP_MAX, Plan
from ottla.broker.groups.modern.assignment import NOTHING, Assignment, Assignor, Subscriber
from ottla.broker.groups.modern.assignors import assign_range, assign_uniform
from ottla.broker.groups.modern.topics import partition_counts, topic_ids
from ottla.controller.metadata.topics import TopicsImage
from ottla.protocol.internal_topics.group_records import ConsumerGroupMemberMetadataValue

#: The server's assignors by their names in requests.
ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}


def plan(shard: GroupMetadataManager, group: ConsumerGroup) -> Plan:
    topics = shard.cluster.topics()
    metadata = {member.member_id: member.metadata for member in group.members.values()}
    assignor = group.assignor_name(shard.config.consumer_group_assignors[0])
    assign = partial(_targets, metadata, group.regexes.copy(), topics, assignor)
    return Plan(_work(group, topics), assignor, assign)


def _work(group: ConsumerGroup, topics: TopicsImage) -> int:
    """Return how much there is to assign: names in subscriptions and, unless these are too many already, partitions."""
    metadata = [member.metadata for member in group.members.values()]
    names = sum(len(each.subscribed_topic_names) for each in metadata)
    names += sum(len(group.regexes[x].topics) * n for x, n in group.expressions.items() if x in group.regexes)
    if names > WORK_ON_LOOP_MAX:
        return names
    return names + sum(partition_counts(topics, topic_ids(topics, group.subscribed_topics({}))).values())


def _targets(
    metadata: Mapping[str, ConsumerGroupMemberMetadataValue],
    regexes: Mapping[str, ResolvedRegex],
    topics: TopicsImage,
    assignor: str,
    before: Mapping[str, Assignment],
) -> Mapping[str, Assignment]:
    ids_of: dict[tuple[str, ...], frozenset[bytes]] = {}
    members = {}
    for member_id, each in metadata.items():
        subscription = (each.subscribed_topic_regex or "", *each.subscribed_topic_names)
        if subscription not in ids_of:
            ids_of[subscription] = topic_ids(topics, topics_of(each, regexes))
        members[member_id] = Subscriber(ids_of[subscription], before.get(member_id, NOTHING), each.instance_id)
    subscribed = frozenset[bytes]().union(*ids_of.values())
    return ASSIGNORS[assignor](members, partition_counts(topics, subscribed))
