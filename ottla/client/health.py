"""The problems of a cluster, and what the stop of a node would make unavailable.

`effects_of_stop` is for `ottla cluster may-stop`, before an update node by node goes on: what would become unavailable.

    partitions    fewer replicas would be in sync than min.insync.replicas: acks=all is answered NOT_ENOUGH_REPLICAS
    the quorum    fewer voters would fetch from its leader than a majority: nothing about the cluster can be changed

What no wait could help is kept apart: a partition with one replica is away whenever its broker is. A reassignment that is going on
is neither: ottla/protocol/replica_sets.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from ottla.client.cluster import ClusterClient, NoConnection
from ottla.client.cluster_state import describe_cluster, describe_quorum, directory_problems
from ottla.client.configs import describe_topics_config
from ottla.client.errors import check
from ottla.client.partitions import NO_LEADER, TopicPartition
from ottla.client.topics import adding_replicas
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_quorum import PartitionDataResponse
from ottla.protocol.messages.metadata import MetadataResponseTopic
from ottla.protocol.replica_sets import missing_replicas, original_replicas


class Problem(NamedTuple):
    """A problem of the cluster: `place` is where it is, `problem` what it is."""

    place: str
    problem: str


async def _broker_problems(cluster: ClusterClient, broker_id: int) -> list[Problem]:
    """Return what is wrong with a broker's log directories, or that it cannot be reached."""
    place = f"broker {broker_id}"
    try:
        return [Problem(place, problem) for problem in await directory_problems(cluster, broker_id)]
    except NoConnection as fault:
        return [Problem(place, fault.cause)]


async def find_problems(cluster: ClusterClient) -> list[Problem]:
    """Return the cluster's problems: fenced brokers, full or failed disks, no leader of the quorum, partitions without a leader or with
    missing replicas."""
    found: list[Problem] = []
    described = await describe_cluster(cluster)
    for row in sorted(described.brokers, key=lambda row: row.broker_id):
        if row.is_fenced:
            found.append(Problem(f"broker {row.broker_id}", "fenced"))
        else:
            found += await _broker_problems(cluster, row.broker_id)
    if (await describe_quorum(cluster)).leader_id == NO_LEADER:
        found.append(Problem("quorum", "no leader"))
    topics = (await cluster.metadata(None)).topics
    adding = await adding_replicas(cluster, topics)
    for topic in sorted(topics, key=lambda topic: topic.name or ""):
        for part in sorted(topic.partitions, key=lambda part: part.partition_index):
            place = f"{topic.name}-{part.partition_index}"
            if part.leader_id == NO_LEADER:
                found.append(Problem(place, "no leader"))
            added = adding.get((topic.name or "", part.partition_index), ())
            if missing := sorted(missing_replicas(part.replica_nodes, added, part.isr_nodes)):
                found.append(Problem(place, f"replicas not in sync: {', '.join(map(str, missing))}"))
            if part.offline_replicas:
                found.append(Problem(place, f"replicas offline: {', '.join(map(str, part.offline_replicas))}"))
    return found


MIN_ISR = "min.insync.replicas"
#: A voter fetches at least every second or two (controller.quorum.fetch.timeout.ms); one that has not for so long does not count.
VOTER_SILENT_MS_MAX = 10_000


class StopEffects(NamedTuple):
    """The effects of a stop. Those of `now` will be over, so that waiting helps; those of `always` will not: nothing is there to spare."""

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
    adding = await adding_replicas(cluster, concerned)
    of_topics = of_partitions(concerned, {name: int(text) for name, text in min_isr.items()}, node_id, adding)
    of_voters = of_quorum(await describe_quorum(cluster), node_id)
    return StopEffects(of_voters.now + of_topics.now, of_voters.always + of_topics.always)


def of_partitions(
    topics: Iterable[MetadataResponseTopic],
    min_isr: Mapping[str, int],
    node_id: int,
    adding: Mapping[TopicPartition, Collection[int]],
) -> StopEffects:
    """Judge the partitions with a replica on the node. One that is being added there, and is not in sync, is not missed."""
    stop = StopEffects([], [])
    for topic in sorted(topics, key=lambda each: each.name or ""):
        for part in sorted(topic.partitions, key=lambda each: each.partition_index):
            added = adding.get((topic.name or "", part.partition_index), ())
            original = original_replicas(part.replica_nodes, added)
            if node_id not in original and node_id not in part.isr_nodes:
                continue
            least = min_isr[str(topic.name)]
            left = len(set(part.isr_nodes) - {node_id})
            if left >= max(least, 1):
                continue
            has_more = len(original) > max(least, 1)
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
