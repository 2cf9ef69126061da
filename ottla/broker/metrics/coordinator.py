"""The coordinators: groups under Kafka's names and under those of kafka_exporter, and transactions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import Enum

from ottla.broker.coordinator.context import State
from ottla.broker.groups.group_coordinator_service import GroupCoordinatorService
from ottla.broker.groups.group_metadata_manager import GroupMetadataManager
from ottla.broker.groups.state.classic_states import GroupState as ClassicState
from ottla.broker.groups.state.consumer_group import ConsumerGroup
from ottla.broker.groups.state.group import GroupType
from ottla.broker.groups.state.share_group import ShareGroup
from ottla.broker.groups.state.streams_group import StreamsGroup
from ottla.broker.replication.replicas import Replicas
from ottla.broker.transactions.transaction_coordinator import TransactionCoordinator
from ottla.protocol.errors import KafkaError
from ottla.server.metrics import GAUGE, Family, Sample, counter, gauge

METRICS = "kafka_server_groupcoordinatormetrics"
CLASSIC = "kafka_coordinator_group_groupmetadatamanager"
EXPORTER = "kafka_consumergroup"
OF_CONSUMERS = (GroupType.CLASSIC, GroupType.CONSUMER)


def coordinator_metrics(groups: GroupCoordinatorService) -> Iterator[Family]:
    """Kafka's group-coordinator-metrics, and GroupMetadataManager of the classic groups: groups are counted in the loaded shards."""
    runtime, counts, times = groups.runtime, groups.counts, groups.runtime.load_times
    shards = [runtime.shard(partition) for partition in runtime.active_partitions()]
    states: dict[GroupType, Counter[Enum]] = {kind: Counter() for kind in GroupType}
    for shard in shards:
        for group in shard.groups.values():
            states[group.type][group.state] += 1
    classic = states[GroupType.CLASSIC]
    yield gauge(f"{CLASSIC}_numgroups", "Classic groups", classic.total())
    for state in ClassicState:
        yield gauge(f"{CLASSIC}_numgroups{state.value.lower()}", f"Classic groups in {state.value}", classic[state])
    protocols = ((kind.value, counted.total()) for kind, counted in states.items())
    yield _gauges("group_count", "Groups by protocol", "protocol", protocols)
    for kind in (ConsumerGroup, ShareGroup, StreamsGroup):
        name = kind.type.value
        samples = [(state.value.lower(), states[kind.type][state]) for state in kind.states]
        yield _gauges(f"{name}_group_count", f"{name.capitalize()} groups by state", "state", samples)
    partitions = (
        (state.name.lower(), runtime.states()[state]) for state in (State.LOADING, State.ACTIVE, State.FAILED)
    )
    yield _gauges("num_partitions", "Partitions of __consumer_offsets by state", "state", partitions)
    yield gauge(
        f"{METRICS}_partition_load_time_max", "Milliseconds that a partition took to load, at most", times.max_ms
    )
    average_ms = times.sum_ms / times.count if times.count else 0
    yield gauge(f"{METRICS}_partition_load_time_avg", "Milliseconds that a partition took to load", average_ms)
    yield counter(f"{METRICS}_offset_commit_count", "Offsets committed", counts.offset_commits)
    yield counter(f"{METRICS}_offset_expiration_count", "Offsets that expired", counts.offset_expirations)
    yield counter(f"{METRICS}_offset_deletion_count", "Offsets deleted", counts.offset_deletions)
    yield counter(
        f"{METRICS}_group_completed_rebalance_count",
        "Rebalances of classic groups",
        counts.rebalances[GroupType.CLASSIC],
    )
    yield counter(
        f"{METRICS}_consumer_group_rebalance_count",
        "Rebalances of consumer groups",
        counts.rebalances[GroupType.CONSUMER],
    )
    yield counter(
        f"{METRICS}_share_group_rebalance_count", "Rebalances of share groups", counts.rebalances[GroupType.SHARE]
    )
    yield counter(
        f"{METRICS}_streams_group_rebalance_count", "Rebalances of streams groups", counts.rebalances[GroupType.STREAMS]
    )


def transaction_metrics(coordinator: TransactionCoordinator) -> Iterator[Family]:
    """Kafka has only a line of the log for it."""
    doc = "Transactions that stay prepared because a partition has refused their marker for good"
    yield counter("ottla_transaction_markers_refused", doc, coordinator.refused_markers)


def _gauges(name: str, doc: str, label: str, values: Iterable[tuple[str, float]]) -> Family:
    return Family(f"{METRICS}_{name}", GAUGE, doc, [Sample({label: key}, value) for key, value in values])


def group_metrics(groups: GroupCoordinatorService, replicas: Replicas) -> Iterator[Family]:
    """Consumer groups under the names of kafka_exporter, from the groups' coordinator alone.

    The lag is computed for partitions with a replica on this broker. For others the committed offset is
    shown without a lag; `kafka_topic_partition_current_offset` of their leaders completes it.
    """
    for partition in groups.runtime.active_partitions():
        try:
            shard = groups.runtime.shard(partition)
        except KafkaError:
            continue  # lost between two slices of the scrape
        yield from _of(shard, replicas)


def _of(shard: GroupMetadataManager, replicas: Replicas) -> Iterator[Family]:
    members = [
        Sample({"consumergroup": name}, len(group.members))
        for name, group in shard.groups.items()
        if group.type in OF_CONSUMERS
    ]
    yield Family(f"{EXPORTER}_members", GAUGE, "Members of the group", members)
    offsets: list[Sample] = []
    lags: list[Sample] = []
    offset_sums: list[Sample] = []
    lag_sums: list[Sample] = []
    for name, topics in shard.offsets.groups.items():
        for topic, partitions in topics.items():
            labels = {"consumergroup": name, "topic": topic}
            topic_lags = []
            for index, committed in partitions.items():
                place = {**labels, "partition": str(index)}
                offsets.append(Sample(place, committed.offset))
                end = _end_offset(replicas, topic, index)
                if end is not None:
                    topic_lags.append(max(0, end - committed.offset))
                    lags.append(Sample(place, topic_lags[-1]))
            offset_sums.append(Sample(labels, sum(committed.offset for committed in partitions.values())))
            if topic_lags:
                lag_sums.append(Sample(labels, sum(topic_lags)))
    yield Family(f"{EXPORTER}_current_offset", GAUGE, "The committed offset", offsets)
    yield Family(f"{EXPORTER}_current_offset_sum", GAUGE, "Committed offsets of the topic", offset_sums)
    yield Family(f"{EXPORTER}_lag", GAUGE, "Records behind the committed offset", lags)
    yield Family(f"{EXPORTER}_lag_sum", GAUGE, "Records of the topic behind the committed offsets", lag_sums)


def _end_offset(replicas: Replicas, topic: str, index: int) -> int | None:
    partition = replicas.get(topic, index)
    return None if partition is None or partition.log is None else partition.log.high_watermark
