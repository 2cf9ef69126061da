"""StreamsGroupDescribe: epochs, the topology, members, which tasks each has and which it shall have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ottla.broker.groups import modern_describe as modern
from ottla.broker.groups.group_metadata_manager import GroupMetadataManager
from ottla.broker.groups.state.streams_group import StreamsGroup
from ottla.broker.groups.state.streams_member import Member as GroupMember
from ottla.broker.groups.state.streams_member import Tasks, structs_of
from ottla.protocol.internal_topics.streams_group_records import Subtopology as RecordedSubtopology
from ottla.protocol.internal_topics.streams_group_records import TopologyTopicInfo
from ottla.protocol.messages.shared_structs import Endpoint, KeyValue, TaskIds, TopicInfo
from ottla.protocol.messages.streams_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    Subtopology,
    Topology,
)

#: The only one that there is.
ASSIGNOR = "sticky"


def describe(shard: GroupMetadataManager, group_ids: Sequence[str]) -> list[DescribedGroup]:
    return modern.describe(shard, StreamsGroup, group_ids, _described, DescribedGroup)


def _described(shard: GroupMetadataManager, group: StreamsGroup) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        topology=_topology(group),
        members=[_member(group, member) for member in group.members.values()],
        assignor_name=ASSIGNOR,
    )


def _topology(group: StreamsGroup) -> Topology | None:
    """With the numbers of partitions that were decided, once the topology is ready."""
    if group.topology is None:
        return None
    configured = group.configured
    decided: dict[str, Mapping[str, int]] = {}
    if configured is not None and configured.is_ready:
        decided = {name: each.counts for name, each in (configured.subtopologies or {}).items()}
    known = group.topology.subtopologies
    return Topology(group.topology.epoch, [_subtopology(known[name], decided.get(name, {})) for name in sorted(known)])


def _subtopology(subtopology: RecordedSubtopology, counts: Mapping[str, int]) -> Subtopology:
    def topics(infos: Iterable[TopologyTopicInfo]) -> Iterator[TopicInfo]:
        for info in sorted(infos, key=lambda info: info.name):
            configs = [KeyValue(config.key, config.value) for config in info.topic_configs]
            yield TopicInfo(info.name, counts.get(info.name, info.partitions), info.replication_factor, configs)

    return Subtopology(
        subtopology_id=subtopology.subtopology_id,
        source_topics=sorted(subtopology.source_topics),
        repartition_sink_topics=sorted(subtopology.repartition_sink_topics),
        state_changelog_topics=[*topics(subtopology.state_changelog_topics)],
        repartition_source_topics=[*topics(subtopology.repartition_source_topics)],
    )


def _member(group: StreamsGroup, member: GroupMember) -> Member:
    metadata = member.metadata
    endpoint = metadata.user_endpoint
    return Member(
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
        assignment=_assignment(member.current.assigned.tasks),
        target_assignment=_assignment(group.target(member.member_id)),
    )


def _assignment(tasks: Tasks) -> Assignment:
    return Assignment(
        structs_of(tasks.active, TaskIds), structs_of(tasks.standby, TaskIds), structs_of(tasks.warmup, TaskIds)
    )
