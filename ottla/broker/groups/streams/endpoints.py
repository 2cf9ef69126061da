"""Interactive queries: which input partitions the members that have an endpoint work on, so that applications ask the right one."""

from __future__ import annotations

from ottla.broker.groups.state.configured import ConfiguredTopology
from ottla.broker.groups.state.streams_group import StreamsGroup
from ottla.broker.groups.state.streams_member import TaskSet
from ottla.broker.groups.state.topology import inputs
from ottla.controller.metadata.topics import TopicsImage
from ottla.protocol.messages.shared_structs import Endpoint
from ottla.protocol.messages.streams_group_heartbeat import (
    EndpointToPartitions,
    TopicPartition,
)


def partitions_by_endpoint(group: StreamsGroup, topics: TopicsImage) -> list[EndpointToPartitions]:
    """One entry for each member that has an endpoint; none as long as the topology has no tasks."""
    configured = group.configured
    if configured is None or configured.subtopologies is None:
        return []
    found = []
    for member in group.members.values():
        endpoint = member.metadata.user_endpoint
        if endpoint is not None:
            tasks = member.current.assigned.tasks
            found.append(
                EndpointToPartitions(
                    Endpoint(endpoint.host, endpoint.port),
                    _partitions(tasks.active, configured, topics),
                    _partitions(tasks.standby, configured, topics),
                )
            )
    return found


def _partitions(tasks: TaskSet, configured: ConfiguredTopology, topics: TopicsImage) -> list[TopicPartition]:
    """A topic may have fewer partitions than its subtopology has tasks."""
    found = []
    for subtopology_id in sorted(tasks):
        known = (configured.subtopologies or {}).get(subtopology_id)
        for name in dict.fromkeys(inputs(known.subtopology)) if known is not None else ():
            topic = topics.by_name(name)
            if topic is not None:
                there = [partition for partition in sorted(tasks[subtopology_id]) if partition in topic.partitions]
                found.append(TopicPartition(name, there))
    return found
