"""Describing groups, of each kind by its own API, and listing them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Generic, TypeVar

from ottla.broker.groups.classic.classic_group import ClassicGroup
from ottla.broker.groups.classic.classic_member import DEAD, STABLE
from ottla.broker.groups.consumer.consumer_group import ConsumerGroup
from ottla.broker.groups.group import Group
from ottla.broker.groups.group_metadata_manager import GroupMetadataManager
from ottla.broker.groups.modern.assignment import Assignment, partitions_of, structs_of, union
from ottla.broker.groups.modern.modern_group import AnyModernGroup
from ottla.broker.groups.share.share_group import ShareGroup
from ottla.broker.groups.streams import streams_group
from ottla.broker.groups.streams.streams_group import StreamsGroup, TasksTuple
from ottla.controller.metadata.topics import TopicsImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages import consumer_group_describe as consumer
from ottla.protocol.messages import share_group_describe as share
from ottla.protocol.messages import streams_group_describe as streams
from ottla.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from ottla.protocol.messages.list_groups import ListedGroup
from ottla.protocol.messages.shared_structs import Assignment as TopicAssignment
from ottla.protocol.messages.shared_structs import Endpoint, KeyValue, Subtopology, TaskIds, TopicInfo, TopicPartitions
from ottla.protocol.slotted import frozen

G = TypeVar("G", bound=AnyModernGroup)
T = TypeVar("T")

#: The type of a member of a consumer group by the protocol that it speaks.
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


# ---- all kinds


def groups_of(shard: GroupMetadataManager, types: Set[str]) -> list[Group]:
    """Return the shard's groups of one of the types; an empty filter matches all."""
    return [group for group in shard.groups.values() if not types or group.type.value in types]


def listed(group: Group, states: Set[str]) -> ListedGroup | None:
    """Return None for a group in another state than these."""
    state = group.state.value
    if states and state.lower() not in states:
        return None
    return ListedGroup(group.group_id, group.protocol_type or "", state, group.type.value)


@frozen
class Description(Generic[G, T]):
    """The description of groups of a kind that has its own API. `failed` makes a row of error code, message and group id."""

    kind: type[G]
    described: Callable[[GroupMetadataManager, G], T]
    failed: Callable[[int, str | None, str], T]
    #: The topics that a description shows. If the client may not DESCRIBE one of them, it gets the message below instead.
    topics: Callable[[T], Iterable[str]]
    hidden: str = "The group has described topic(s) that the client is not authorized to describe."

    def of(self, shard: GroupMetadataManager, group_ids: Sequence[str]) -> list[T]:
        """Describe groups; those that are not readable, or not of the kind, have an error."""
        found = []
        for group_id in group_ids:
            try:
                shard.check_readable(group_id)
                found.append(self.described(shard, shard.group(self.kind, group_id)))
            except KafkaError as error:
                found.append(self.failed(error.code, error.message, group_id))
        return found


# ---- classic groups


def describe(shard: GroupMetadataManager, group_ids: Sequence[str], error_since: bool) -> list[DescribedGroup]:
    """Describe groups; unknown ones are Dead, and since v6 (`error_since`) have an error, too (KIP-1043)."""
    return [
        DescribedGroup(group_id=group_id, error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        if group_id in shard.unreadable
        else _classic_group(shard, group_id, error_since)
        for group_id in group_ids
    ]


def _classic_group(shard: GroupMetadataManager, group_id: str, error_since: bool) -> DescribedGroup:
    try:
        group = shard.group(ClassicGroup, group_id)
    except KafkaError as error:
        described = DescribedGroup(group_id=group_id, group_state=DEAD.value)
        if error_since:
            described.error_code, described.error_message = error.code, error.message
        return described
    stable = group.state is STABLE
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol_name) if stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )


# ---- consumer and share groups


def _consumer_group(shard: GroupMetadataManager, group: ConsumerGroup) -> consumer.DescribedGroup:
    """Return the description. The assignments include partitions pending revocation, because members may still own them."""
    topics = shard.cluster.topics()
    return consumer.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor_name(shard.config.consumer_group_assignors[0]),
        members=[
            consumer.Member(
                member_id=member.member_id,
                instance_id=member.metadata.instance_id,
                rack_id=member.metadata.rack_id,
                member_epoch=member.current.epoch,
                client_id=member.metadata.client_id,
                client_host=member.metadata.client_host,
                subscribed_topic_names=member.metadata.subscribed_topic_names,
                subscribed_topic_regex=member.metadata.subscribed_topic_regex,
                assignment=_by_name(
                    union(partitions_of(member.current.assigned), partitions_of(member.current.pending_revocation)),
                    topics,
                ),
                target_assignment=_by_name(group.target(member.member_id), topics),
                member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
            )
            for member in group.members.values()
        ],
    )


def _by_name(assignment: Assignment, topics: TopicsImage) -> TopicAssignment:
    """Return the assignment by topic name, without topics that have been deleted."""
    return TopicAssignment(
        [
            TopicPartitions(topic_id, topic.name, sorted(partitions))
            for topic_id, partitions in assignment.items()
            if (topic := topics.by_id(topic_id)) is not None
        ]
    )


def _consumer_topics(group: consumer.DescribedGroup) -> set[str]:
    return {
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }


def _share_topics(group: share.DescribedGroup) -> set[str]:
    return {topic.topic_name for member in group.members for topic in member.assignment.topic_partitions}


def _share_group(shard: GroupMetadataManager, group: ShareGroup) -> share.DescribedGroup:
    topics = shard.cluster.topics()
    return share.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name="simple",
        members=[
            share.Member(
                member_id=member.member_id,
                rack_id=member.metadata.rack_id,
                member_epoch=member.current.epoch,
                client_id=member.metadata.client_id,
                client_host=member.metadata.client_host,
                subscribed_topic_names=member.metadata.subscribed_topic_names,
                assignment=_by_name(member.current.assigned, topics),
            )
            for member in group.members.values()
        ],
    )


# ---- streams groups


def _streams_group(shard: GroupMetadataManager, group: StreamsGroup) -> streams.DescribedGroup:
    return streams.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        topology=_topology(group),
        members=[_streams_member(group, member) for member in group.members.values()],
        assignor_name="sticky",
    )


def _topology(group: StreamsGroup) -> streams.Topology | None:
    """Return the topology, with the numbers of partitions that were decided once it is ready."""
    if group.topology is None:
        return None
    configured = group.configured
    decided: dict[str, Mapping[str, int]] = {}
    if configured is not None and configured.is_ready:
        decided = {name: each.counts for name, each in (configured.subtopologies or {}).items()}
    known = group.topology.subtopologies
    rows = [_subtopology(known[name], decided.get(name, {})) for name in sorted(known)]
    return streams.Topology(group.topology.epoch, rows)


def _subtopology(subtopology: Subtopology, counts: Mapping[str, int]) -> streams.Subtopology:
    def topics(infos: Iterable[TopicInfo]) -> Iterator[TopicInfo]:
        for info in sorted(infos, key=lambda info: info.name):
            configs = [KeyValue(config.key, config.value) for config in info.topic_configs]
            yield TopicInfo(info.name, counts.get(info.name, info.partitions), info.replication_factor, configs)

    return streams.Subtopology(
        subtopology_id=subtopology.subtopology_id,
        source_topics=sorted(subtopology.source_topics),
        repartition_sink_topics=sorted(subtopology.repartition_sink_topics),
        state_changelog_topics=[*topics(subtopology.state_changelog_topics)],
        repartition_source_topics=[*topics(subtopology.repartition_source_topics)],
    )


def _streams_member(group: StreamsGroup, member: streams_group.StreamsGroupMember) -> streams.Member:
    metadata = member.metadata
    endpoint = metadata.user_endpoint
    return streams.Member(
        member_id=member.member_id,
        member_epoch=member.current.epoch,
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        topology_epoch=metadata.topology_epoch,
        process_id=metadata.process_id,
        user_endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        client_tags=[KeyValue(tag.key, tag.value) for tag in metadata.client_tags],
        assignment=_tasks(member.current.assigned.tasks),
        target_assignment=_tasks(group.target(member.member_id)),
    )


def _tasks(tasks: TasksTuple) -> streams.Assignment:
    return streams.Assignment(*(structs_of(each, TaskIds) for each in tasks))


def _streams_topics(group: streams.DescribedGroup) -> Iterator[str]:
    for subtopology in () if group.topology is None else group.topology.subtopologies or ():
        yield from subtopology.source_topics
        yield from subtopology.repartition_sink_topics
        for topic in (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics):
            yield topic.name


CONSUMER_GROUPS = Description(ConsumerGroup, _consumer_group, consumer.DescribedGroup, _consumer_topics)
SHARE_GROUPS = Description(ShareGroup, _share_group, share.DescribedGroup, _share_topics)
STREAMS_GROUPS = Description(
    StreamsGroup,
    _streams_group,
    streams.DescribedGroup,
    _streams_topics,
    hidden="The described group uses topics that the client is not authorized to describe.",
)
