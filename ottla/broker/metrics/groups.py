"""Consumer groups under the names of kafka_exporter, from the groups' coordinator alone.

The lag is computed for partitions with a replica on this broker. For others the committed offset is
shown without a lag; `kafka_topic_partition_current_offset` of their leaders completes it.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.broker.groups.group_coordinator_service import GroupCoordinatorService
from ottla.broker.groups.group_metadata_manager import GroupMetadataManager
from ottla.broker.groups.state.group import GroupType
from ottla.broker.replication.replicas import Replicas
from ottla.protocol.errors import KafkaError
from ottla.server.metrics import GAUGE, Family, Sample

PREFIX = "kafka_consumergroup"
OF_CONSUMERS = (GroupType.CLASSIC, GroupType.CONSUMER)


def group_metrics(groups: GroupCoordinatorService, replicas: Replicas) -> Iterator[Family]:
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
    yield Family(f"{PREFIX}_members", GAUGE, "Members of the group", members)
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
    yield Family(f"{PREFIX}_current_offset", GAUGE, "The committed offset", offsets)
    yield Family(f"{PREFIX}_current_offset_sum", GAUGE, "Committed offsets of the topic", offset_sums)
    yield Family(f"{PREFIX}_lag", GAUGE, "Records behind the committed offset", lags)
    yield Family(f"{PREFIX}_lag_sum", GAUGE, "Records of the topic behind the committed offsets", lag_sums)


def _end_offset(replicas: Replicas, topic: str, index: int) -> int | None:
    partition = replicas.get(topic, index)
    return None if partition is None or partition.log is None else partition.log.high_watermark
