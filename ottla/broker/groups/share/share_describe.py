"""ShareGroupDescribe: epochs, members, and what each has."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.broker.groups import modern_describe as modern
from ottla.broker.groups.group_metadata_manager import GroupMetadataManager
from ottla.broker.groups.state.share_group import Member as GroupMember
from ottla.broker.groups.state.share_group import ShareGroup
from ottla.controller.metadata.topics import TopicsImage
from ottla.protocol.messages.share_group_describe import DescribedGroup, Member
from ottla.protocol.messages.shared_structs import Assignment, TopicPartitions

ASSIGNOR = "simple"


def describe(shard: GroupMetadataManager, group_ids: Sequence[str]) -> list[DescribedGroup]:
    return modern.describe(shard, ShareGroup, group_ids, _described, DescribedGroup)


def _described(shard: GroupMetadataManager, group: ShareGroup) -> DescribedGroup:
    topics = shard.cluster.topics()
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=ASSIGNOR,
        members=[_member(member, topics) for member in group.members.values()],
    )


def _member(member: GroupMember, topics: TopicsImage) -> Member:
    metadata = member.metadata
    return Member(
        member_id=member.member_id,
        rack_id=metadata.rack_id,
        member_epoch=member.current.epoch,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        subscribed_topic_names=metadata.subscribed_topic_names,
        assignment=Assignment(
            [
                TopicPartitions(topic_id, topic.name, sorted(partitions))
                for topic_id, partitions in member.current.assigned.items()
                if (topic := topics.by_id(topic_id)) is not None
            ]
        ),
    )
