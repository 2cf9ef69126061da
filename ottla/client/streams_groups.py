"""Administration of streams groups (KIP-1071): their topology, members and topics. Offsets are as those of other groups."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ottla.client.cluster import ClusterClient
from ottla.client.cluster_error import check
from ottla.client.coordinator_requests import ask_about_group, first_group
from ottla.client.leaders import TopicPartition
from ottla.protocol.messages.shared_structs import TaskIds
from ottla.protocol.messages.streams_group_describe import DescribedGroup, StreamsGroupDescribeRequest, Subtopology

#: The names of topics that Kafka Streams creates, after the application id.
_INTERNAL = re.compile(
    r".*-(changelog|repartition|subscription-registration-topic|subscription-response-topic"
    r"|KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-\d+-topic)"
)


async def describe_streams_group(cluster: ClusterClient, group: str) -> DescribedGroup:
    """Return the group as its coordinator describes it."""
    request = StreamsGroupDescribeRequest([group])
    doing = f"describing streams group {group}"
    found: DescribedGroup = await ask_about_group(cluster, group, request, doing, first_group)
    check(f"group {group}", found.error_code, found.error_message)
    return found


def subtopologies(group: DescribedGroup) -> list[Subtopology]:
    return [] if group.topology is None else group.topology.subtopologies or []


def input_topics(group: DescribedGroup, *, repartitions: bool = False) -> set[str]:
    """Return the topics that the topology reads; `repartitions`: those through which it passes records on, too."""
    names = {topic for part in subtopologies(group) for topic in part.source_topics}
    if repartitions:
        names |= {topic.name for part in subtopologies(group) for topic in part.repartition_source_topics}
    return names


def task_places(group: DescribedGroup, tasks: Iterable[TaskIds]) -> Iterator[TopicPartition]:
    """Yield the partitions that tasks read."""
    read = {
        part.subtopology_id: [*part.source_topics, *(topic.name for topic in part.repartition_source_topics)]
        for part in subtopologies(group)
    }
    for task in tasks:
        yield from ((topic, index) for topic in read[task.subtopology_id] for index in task.partitions)


def internal_topics(group: DescribedGroup) -> tuple[list[str], list[str]]:
    """Return the topics that the application has made for itself, and those of the topology that are not named as such."""
    sources = input_topics(group)
    found = [
        topic.name
        for part in subtopologies(group)
        for topic in (*part.repartition_source_topics, *part.state_changelog_topics)
        if topic.name not in sources
    ]
    own = [name for name in found if name.startswith(f"{group.group_id}-") and _INTERNAL.fullmatch(name)]
    return own, [name for name in found if name not in own]
