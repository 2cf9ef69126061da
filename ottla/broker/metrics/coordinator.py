"""The coordinators: groups under Kafka's names and under those of kafka_exporter, transactions, and share groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import Enum

from ottla.broker.coordinator.context import CoordinatorState
from ottla.broker.coordinator.shard import LoadTimes
from ottla.broker.groups.classic.classic_member import ClassicGroupState
from ottla.broker.groups.consumer.consumer_group import ConsumerGroup
from ottla.broker.groups.group import GroupType
from ottla.broker.groups.group_coordinator_service import GroupCoordinatorService
from ottla.broker.groups.group_metadata_manager import GroupMetadataManager
from ottla.broker.groups.share.share_group import ShareGroup
from ottla.broker.groups.streams.streams_group import StreamsGroup
from ottla.broker.replication.replicas import Replicas
from ottla.broker.share.coordinator.share_coordinator import ShareCoordinator
from ottla.broker.share.in_flight import AcknowledgeType
from ottla.broker.share.leaders import ShareLeaders
from ottla.broker.share.led_partition import LedSharePartition, Phase
from ottla.broker.transactions.transaction_coordinator import TransactionCoordinator
from ottla.protocol.errors import KafkaError
from ottla.server.metrics import COUNTER, GAUGE, Family, Sample, counter, gauge, histograms

METRICS = "kafka_server_groupcoordinatormetrics"
CLASSIC = "kafka_coordinator_group_groupmetadatamanager"
EXPORTER = "kafka_consumergroup"
SHARE_GROUPS = "kafka_server_sharegroupmetrics"
SHARE_PARTITIONS = "kafka_server_sharepartitionmetrics"
SHARE_SESSIONS = "kafka_server_sharesessioncache"
SHARE_COORDINATOR = "kafka_server_sharecoordinatormetrics"
REBALANCES = (
    ("group_completed", GroupType.CLASSIC),
    ("consumer_group", GroupType.CONSUMER),
    ("share_group", GroupType.SHARE),
    ("streams_group", GroupType.STREAMS),
)
#: The states of a shard that are shown.
SHOWN = (CoordinatorState.LOADING, CoordinatorState.ACTIVE, CoordinatorState.FAILED)
OF_CONSUMERS = (GroupType.CLASSIC, GroupType.CONSUMER)


def coordinator_metrics(groups: GroupCoordinatorService) -> Iterator[Family]:
    """Yield Kafka's group-coordinator-metrics, and GroupMetadataManager of the classic groups: groups are counted in the loaded shards."""
    runtime, counts = groups.runtime, groups.counts
    shards = [runtime.shard(partition) for partition in runtime.active_partitions()]
    states: dict[GroupType, Counter[Enum]] = {kind: Counter() for kind in GroupType}
    for shard in shards:
        for group in shard.groups.values():
            states[group.type][group.state] += 1
    classic = states[GroupType.CLASSIC]
    yield gauge(f"{CLASSIC}_numgroups", "Classic groups", classic.total())
    for state in ClassicGroupState:
        yield gauge(f"{CLASSIC}_numgroups{state.value.lower()}", f"Classic groups in {state.value}", classic[state])
    protocols = ((kind.value, counted.total()) for kind, counted in states.items())
    yield _gauges("group_count", "Groups by protocol", "protocol", protocols)
    for kind in (ConsumerGroup, ShareGroup, StreamsGroup):
        name = kind.type.value
        samples = [(state.value.lower(), states[kind.type][state]) for state in kind.states]
        yield _gauges(f"{name}_group_count", f"{name.capitalize()} groups by state", "state", samples)
    yield _partitions(METRICS, "__consumer_offsets", runtime.states())
    yield from _loading(f"{METRICS}_partition_load_time", "a partition", runtime.load_times)
    yield counter(f"{METRICS}_offset_commit_count", "Offsets committed", counts.offset_commits)
    yield counter(f"{METRICS}_offset_expiration_count", "Offsets that expired", counts.offset_expirations)
    yield counter(f"{METRICS}_offset_deletion_count", "Offsets deleted", counts.offset_deletions)
    for prefix, group_type in REBALANCES:
        doc = f"Rebalances of {group_type.value} groups"
        yield counter(f"{METRICS}_{prefix}_rebalance_count", doc, counts.rebalances[group_type])


def transaction_metrics(coordinator: TransactionCoordinator) -> Iterator[Family]:
    """Yield the count of refused markers. Kafka has no metric for it, only a line in its log."""
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


def share_metrics(leaders: ShareLeaders, coordinator: ShareCoordinator) -> Iterator[Family]:
    """Share groups under Kafka's names: the share partitions that this broker leads, and the shards of its share coordinator.

    Kafka's FetchLockTimeMs and FetchLockRatio have no counterpart, because there is no lock between the fetches of a share partition.
    """
    yield from _of_groups(leaders)
    led = [(_labels(each), each) for each in leaders.led() if each.phase is Phase.ACTIVE]
    sizes = [Sample(labels, each.state.in_flight.size) for labels, each in led]
    yield Family(f"{SHARE_PARTITIONS}_inflightmessagecount", GAUGE, "Records in flight of the share partition", sizes)
    runs = [Sample(labels, len(each.state.in_flight.runs)) for labels, each in led]
    yield Family(f"{SHARE_PARTITIONS}_inflightbatchcount", GAUGE, "Batches in flight of the share partition", runs)
    late = [Sample(labels, each.timed_out) for labels, each in led]
    yield Family(
        f"{SHARE_PARTITIONS}_acquisitionlocktimeout", COUNTER, "Records whose acquisition lock has timed out", late
    )
    batches = [(labels, each.batch_sizes) for labels, each in led]
    yield from histograms(
        f"{SHARE_PARTITIONS}_inflightbatchmessagecount", "Records of a batch when it was acquired", batches
    )
    yield from _of_coordinator(coordinator)


def _labels(led: LedSharePartition) -> dict[str, str]:
    return {"group": led.key.group_id, "topic": led.partition.topic, "partition": str(led.partition.index)}


def _of_groups(leaders: ShareLeaders) -> Iterator[Family]:
    counts = leaders.counts
    kinds = (kind for kind in AcknowledgeType if kind is not AcknowledgeType.GAP)
    acknowledged = [Sample({"ackType": kind.name.capitalize()}, counts.acknowledged[kind]) for kind in kinds]
    yield Family(f"{SHARE_GROUPS}_recordacknowledgements", COUNTER, "Records acknowledged, by type", acknowledged)
    for name, text, by_group in (
        ("recordcount", "Dead letters written", counts.dead_letters),
        ("totalproducerequests", "Batches of dead letters that were to be produced", counts.dead_letter_requests),
        ("failedproducerequests", "Batches of dead letters that have failed for good", counts.dead_letter_failures),
    ):
        letters = [Sample({"group": group_id}, count) for group_id, count in by_group.items()]
        yield Family(f"{SHARE_GROUPS}_deadletterqueue{name}", COUNTER, text, letters)
    yield from _loading(f"{SHARE_GROUPS}_partitionloadtimems", "a share partition", counts.load_times)
    for name, text, by_group_id in (
        (
            "requesttopicpartitionsfetchratio",
            "Percentage of a ShareFetch's partitions that gave records",
            counts.fetch_ratios,
        ),
        (
            "topicpartitionsacquiretimems",
            "Milliseconds of a ShareFetch until it acquired records",
            counts.acquire_times_ms,
        ),
    ):
        yield from histograms(
            f"{SHARE_GROUPS}_{name}", text, [({"group": key}, each) for key, each in by_group_id.items()]
        )
    sessions = leaders.sessions
    yield gauge(f"{SHARE_SESSIONS}_numsharesessions", "Share sessions", len(sessions))
    yield gauge(
        f"{SHARE_SESSIONS}_numsharepartitionscached", "Partitions in share sessions", sessions.partition_count()
    )


def _of_coordinator(coordinator: ShareCoordinator) -> Iterator[Family]:
    runtime = coordinator.runtime
    yield _partitions(SHARE_COORDINATOR, "__share_group_state", runtime.states())
    yield from _loading(f"{SHARE_COORDINATOR}_partition_load_time", "a partition", runtime.load_times)
    yield counter(f"{SHARE_COORDINATOR}_write", "WriteShareGroupState requests", coordinator.writes)


def _partitions(prefix: str, topic: str, states: Counter[CoordinatorState]) -> Family:
    samples = [Sample({"state": state.name.lower()}, states[state]) for state in SHOWN]
    return Family(f"{prefix}_num_partitions", GAUGE, f"Partitions of {topic} by state", samples)


def _loading(name: str, what: str, times: LoadTimes) -> Iterator[Family]:
    yield gauge(f"{name}_max", f"Milliseconds that {what} took to load, at most", times.max_ms)
    average_ms = times.sum_ms / times.count if times.count else 0
    yield gauge(f"{name}_avg", f"Milliseconds that {what} took to load", average_ms)
