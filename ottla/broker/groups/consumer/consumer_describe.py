"""ConsumerGroupDescribe: the epochs of a group, and its members with their current and target assignments."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.broker.groups import modern_describe as modern
from ottla.broker.groups.group_metadata_manager import GroupMetadataManager
from ottla.broker.groups.modern.assignment import Assignment as Partitions
from ottla.broker.groups.state.consumer_group import ConsumerGroup
from ottla.broker.groups.state.consumer_member import Member as GroupMember
from ottla.broker.groups.state.consumer_member import partitions_of
from ottla.controller.metadata.topics import TopicsImage
from ottla.protocol.messages.consumer_group_describe import DescribedGroup, Member
from ottla.protocol.messages.shared_structs import Assignment, TopicPartitions

#: The type of a member by the protocol that it speaks.
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def describe(shard: GroupMetadataManager, group_ids: Sequence[str]) -> list[DescribedGroup]:
    return modern.describe(shard, ConsumerGroup, group_ids, _described, DescribedGroup)


def _described(shard: GroupMetadataManager, group: ConsumerGroup) -> DescribedGroup:
    topics = shard.cluster.topics()
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor_name(shard.config.consumer_group_assignors[0]),
        members=[_member(group, member, topics) for member in group.members.values()],
    )


def _member(group: ConsumerGroup, member: GroupMember, topics: TopicsImage) -> Member:
    metadata = member.metadata
    return Member(
        member_id=member.member_id,
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        member_epoch=member.current.epoch,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        subscribed_topic_names=metadata.subscribed_topic_names,
        subscribed_topic_regex=metadata.subscribed_topic_regex,
        assignment=_assignment(_held(member), topics),
        target_assignment=_assignment(group.target(member.member_id), topics),
        member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    )


def _held(member: GroupMember) -> Partitions:
    """Returns the current assignment with the partitions pending revocation, because the member may still own them."""
    held = dict(partitions_of(member.current.assigned))
    for topic_id, partitions in partitions_of(member.current.pending_revocation).items():
        held[topic_id] = held.get(topic_id, frozenset()) | partitions
    return held


def _assignment(assignment: Partitions, topics: TopicsImage) -> Assignment:
    """Returns the assignment by topic name, without topics that have been deleted."""
    return Assignment(
        [
            TopicPartitions(topic_id, topic.name, sorted(partitions))
            for topic_id, partitions in assignment.items()
            if (topic := topics.by_id(topic_id)) is not None
        ]
    )
