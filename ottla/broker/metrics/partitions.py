"""One sample per partition and name, from the partition's leader alone, so that three scraped brokers do not count thrice.

Given in portions: a broker may have thousands, and a scrape is not to hold up its clients. A partition is 14 samples and 0.9 KB of a
scrape, so that ottla.metrics.partitions.max bounds how many there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from ottla.broker.replication.partition import Partition
from ottla.broker.replication.replicas import Replicas
from ottla.controller.metadata.partitions import NO_LEADER
from ottla.server.metrics import GAUGE, Family, Sample, gauge

PORTION = 100


class _Row(NamedTuple):
    name: str
    doc: str


#: The names of kafka_exporter, and the three of Kafka's own that are per partition; in the order of `_values`.
LEADER_GAUGES = (
    _Row("kafka_topic_partition_current_offset", "The high watermark"),
    _Row("kafka_topic_partition_oldest_offset", "The log start offset"),
    _Row("kafka_topic_partition_in_sync_replica", "Replicas in sync"),
    _Row("kafka_topic_partition_leader", "The leader's node id"),
    _Row("kafka_topic_partition_leader_is_preferred", "1 if the first replica leads"),
    _Row("kafka_topic_partition_replicas", "Replicas"),
    _Row("kafka_topic_partition_under_replicated_partition", "1 if replicas are out of sync"),
    _Row("kafka_cluster_partition_underreplicated", "1 if replicas are out of sync"),
    _Row("kafka_cluster_partition_underminisr", "1 if fewer replicas are in sync than required"),
    _Row("kafka_cluster_partition_atminisr", "1 if just as many replicas are in sync as required"),
    _Row("kafka_cluster_partition_insyncreplicascount", "Replicas in sync"),
    _Row("kafka_cluster_partition_replicascount", "Replicas"),
)


def partition_metrics(replicas: Replicas, partitions_max: int) -> Iterator[Family]:
    partitions = list(replicas)
    shown = partitions[:partitions_max]
    yield gauge(
        "ottla_metrics_partitions_left_out",
        "Partitions with a replica here that have no samples of their own",
        len(partitions) - len(shown),
    )
    everything = iter(shown)
    while portion := list(islice(everything, PORTION)):
        yield from _of(portion)


def _of(partitions: list[Partition]) -> Iterator[Family]:
    labelled = [(p, {"topic": p.topic, "partition": str(p.index)}) for p in partitions]
    led = [(labels, _values(p)) for p, labels in labelled if p.is_leader and p.log is not None]
    for position, (name, doc) in enumerate(LEADER_GAUGES):
        yield Family(name, GAUGE, doc, [Sample(labels, values[position]) for labels, values in led])
    sizes = [Sample(labels, p.log.size) for p, labels in labelled if p.log is not None]
    yield Family("kafka_log_log_size", GAUGE, "Bytes of the log", sizes)
    ends = [Sample(labels, p.log.log_end_offset) for p, labels in labelled if p.log is not None]
    yield Family("kafka_log_log_logendoffset", GAUGE, "The offset that the next record gets", ends)


def _values(partition: Partition) -> tuple[int, ...]:
    log = partition.log
    assert log is not None
    in_sync, replicas = len(partition.isr), len(partition.replicas)
    behind = int(in_sync < replicas)
    return (
        log.high_watermark,
        log.log_start_offset,
        in_sync,
        partition.leader_id,
        int(partition.leader_id == (partition.replicas[0] if partition.replicas else NO_LEADER)),
        replicas,
        behind,
        behind,
        int(in_sync < partition.min_isr),
        int(in_sync == partition.min_isr),
        in_sync,
        replicas,
    )
