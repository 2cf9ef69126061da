"""The memory and the start of a node that knows 10,000 segments in the store.

The records are written to `__remote_log_metadata` by a client, because real copies of 10,000 segments would take minutes and
not change the figures.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

from benchmarks.tiers.node import TIERED, TieredNodes, nodes, wait_until
from benchmarks.topic_tables.page import Figure
from benchmarks.usage import anonymous_megabytes
from ottla.broker.tiers.metadata_topic import TOPIC as RECORDS
from ottla.broker.tiers.remote_segments import RemoteSegment, RemoteState, TieredPartition, changed, started
from ottla.protocol.api import ApiKey
from ottla.protocol.internal_topics.remote_log_records import encode_remote_log_record, metadata_partition
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.testing.cluster import METADATA_VERSION
from ottla.testing.connection import ClusterConnection

TOPIC = "long"
PARTITIONS, SEGMENTS = 10, 10_000
SEGMENT_RECORDS, SEGMENT_BYTES = 1_000_000, 1 << 30
STARTS = 5
#: The time after a start until its first work is over.
SETTLE_SECONDS = 5.0


def figures() -> Iterator[Figure]:
    with nodes() as running:
        running.create(TOPIC, PARTITIONS, TIERED | {"retention.ms": "-1", "local.retention.ms": "-2"})
        wait_until(lambda: len(running.states(TOPIC)) == PARTITIONS)
        begin(running)
        without = starts(running, 0)
        write(running)
        beside = starts(running, SEGMENTS)
    each = (beside.megabytes - without.megabytes) / SEGMENTS * 1e3
    note = f"{beside.megabytes:.1f} MB with, {without.megabytes:.1f} MB without, after a start; {each:.2f} KB a segment"
    yield Figure(
        f"heap for {SEGMENTS:,} remote segments", beside.megabytes - without.megabytes, "MB", at_most=20, note=note
    )
    note = f"{beside.seconds:.2f} s and {without.seconds:.2f} s; medians of {STARTS}"
    yield Figure("a start takes longer by", max(0.0, beside.seconds - without.seconds), "s", at_most=0.2, note=note)
    yield Figure("all segments are known after a start in", beside.known, "s", note="by the page /tiers")


def begin(running: TieredNodes) -> None:
    """Write a record to each partition: a log without one would begin in a later epoch than the segments, which would be deleted."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": running.bootstrap})
    for partition in range(PARTITIONS):
        producer.produce(TOPIC, b"first", partition=partition)
    assert not producer.flush(60)


class Starts:
    """Medians of several starts."""

    def __init__(self, seconds: list[float], known: list[float], megabytes: list[float]) -> None:
        self.seconds, self.known, self.megabytes = map(statistics.median, (seconds, known, megabytes))


def starts(running: TieredNodes, segments: int) -> Starts:
    seconds, known, megabytes = list[float](), list[float](), list[float]()
    for _ in range(STARTS):
        running.cluster.stop(1)
        began = time.monotonic()
        seconds.append(running.cluster.start(1))
        wait_until(lambda: sum(row["remote_segments"] for row in running.states(TOPIC)) == segments)
        known.append(time.monotonic() - began)
        time.sleep(SETTLE_SECONDS)
        megabytes.append(anonymous_megabytes(running.pids))
    return Starts(seconds, known, megabytes)


def write(running: TieredNodes) -> None:
    """Write the records of finished copies of 1 GiB each."""
    from confluent_kafka import Producer

    host, _, port = running.bootstrap.rpartition(":")
    with ClusterConnection(host, int(port), None) as connection:
        answer = connection.request(MetadataRequest(topics=None), ApiKey.METADATA, METADATA_VERSION)
    topics = {topic.name: topic for topic in answer.topics}
    topic_id, count = topics[TOPIC].topic_id, len(topics[RECORDS].partitions)
    producer = Producer({"bootstrap.servers": running.bootstrap, "enable.idempotence": True})
    for number in range(SEGMENTS):
        partition, nth = number % PARTITIONS, number // PARTITIONS
        place = TieredPartition(TOPIC, topic_id, partition)
        start = nth * SEGMENT_RECORDS
        segment = RemoteSegment(
            id=number.to_bytes(16, "big"),
            start=start,
            end=start + SEGMENT_RECORDS - 1,
            size=SEGMENT_BYTES,
            max_timestamp=time.time_ns() // 1_000_000,
            epochs=((0, start),),
            broker_id=1,
            event_ms=time.time_ns() // 1_000_000,
            has_aborted=False,
        )
        for record in (
            started(place, segment),
            changed(place, segment.id, RemoteState.COPY_FINISHED, 1, segment.event_ms),
        ):
            value = encode_remote_log_record(record)
            producer.produce(RECORDS, value, partition=metadata_partition(topic_id, partition, count))
        producer.poll(0)
    assert not producer.flush(60)
