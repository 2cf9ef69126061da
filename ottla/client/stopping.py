"""The partitions and services that would become unavailable if a node stopped now, for `ottla cluster may-stop`: before an update node by
node goes on.

    partitions    fewer replicas would be in sync than min.insync.replicas: acks=all is answered NOT_ENOUGH_REPLICAS
    the quorum    fewer voters would fetch from its leader than a majority: nothing about the cluster can be changed

What no wait could help is kept apart: a partition with one replica is away whenever its broker is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.client.cluster import ClusterClient
from ottla.client.cluster_error import check
from ottla.client.configs import describe_topics_config
from ottla.client.health import Problem
from ottla.client.quorum import describe_quorum
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_quorum import PartitionDataResponse
from ottla.protocol.messages.metadata import MetadataResponseTopic

MIN_ISR = "min.insync.replicas"
#: A voter fetches at least every second or two (controller.quorum.fetch.timeout.ms); one that has not for so long does not count.
VOTER_SILENT_MS_MAX = 10_000


class StopEffects(NamedTuple):
    """The effects of a stop.

    `now`: waiting helps, because these will be over. `always`: these are there at any time, because nothing is there to spare.
    """

    now: list[Problem]
    always: list[Problem]


async def effects_of_stop(cluster: ClusterClient, node_id: int) -> StopEffects:
    """Ask the cluster what a stop of the node would take away."""
    cluster.doing = "reading which replicas are in sync"
    topics = (await cluster.metadata(None)).topics
    for topic in topics:
        check(f"topic {topic.name}", topic.error_code)
    concerned = [each for each in topics if any(node_id in part.replica_nodes for part in each.partitions)]
    min_isr = await describe_topics_config(cluster, [str(topic.name) for topic in concerned], MIN_ISR)
    for topic in concerned:
        if topic.name not in min_isr:  # deleted, or too new for this broker: who wants to stop a node asks again
            check(f"topic {topic.name}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    of_topics = of_partitions(concerned, {name: int(text) for name, text in min_isr.items()}, node_id)
    of_voters = of_quorum(await describe_quorum(cluster), node_id)
    return StopEffects(of_voters.now + of_topics.now, of_voters.always + of_topics.always)


def of_partitions(topics: Iterable[MetadataResponseTopic], min_isr: Mapping[str, int], node_id: int) -> StopEffects:
    stop = StopEffects([], [])
    for topic in sorted(topics, key=lambda each: each.name or ""):
        for part in sorted(topic.partitions, key=lambda each: each.partition_index):
            if node_id not in part.replica_nodes:
                continue
            least = min_isr[str(topic.name)]
            left = len(set(part.isr_nodes) - {node_id})
            if left >= max(least, 1):
                continue
            has_more = len(part.replica_nodes) > max(least, 1)
            text = f"{left} replicas would be in sync, and {MIN_ISR} is {least}"
            (stop.now if has_more else stop.always).append(Problem(f"{topic.name}-{part.partition_index}", text))
    return stop


def of_quorum(quorum: PartitionDataResponse, node_id: int) -> StopEffects:
    voters = {row.replica_id: row.last_fetch_timestamp for row in quorum.current_voters}
    if node_id not in voters:
        return StopEffects([], [])
    newest_ms = max(voters.values())
    left = sum(newest_ms - at_ms <= VOTER_SILENT_MS_MAX for voter, at_ms in voters.items() if voter != node_id)
    majority = len(voters) // 2 + 1
    if left >= majority:
        return StopEffects([], [])
    found = [Problem("quorum", f"{left} of {len(voters)} voters would be left, and {majority} are a majority")]
    return StopEffects(found, []) if len(voters) > majority else StopEffects([], found)
