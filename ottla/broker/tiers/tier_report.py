"""Metrics of remote storage, and the rows of the page `/tiers` of the admin listener.

Both have the partitions that this broker leads. The names are those of Kafka's BrokerTopicMetrics; names that Kafka does not
have begin with ottla_tier.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from ottla.broker.replication.partition_log import LedLog
from ottla.broker.tiered_topics import TIER_WAITS, WAITS_DOC
from ottla.broker.tiers.partition_tier import CopyLag, PartitionTier, TierCount, TierCounts, copy_lag
from ottla.broker.tiers.remote_chunks import RemoteChunks
from ottla.broker.tiers.remote_segments import RemoteState
from ottla.broker.tiers.tier_driver import TierDriver
from ottla.server.clock import Clock
from ottla.server.metrics import COUNTER, GAUGE, Family, Histogram, Sample, gauge, histograms

PREFIX = "kafka_server_brokertopicmetrics_"
#: Name after the prefix, what it says, which count.
COUNTS: tuple[tuple[str, str, TierCount], ...] = (
    ("remotecopyrequests", "Segments whose copy to remote storage was begun", TierCount.COPIES),
    ("remotecopybytes", "Bytes of segments copied to remote storage", TierCount.COPIED_BYTES),
    ("remotecopyerrors", "Copies that have failed", TierCount.COPY_ERRORS),
    ("remotedeleterequests", "Segments whose deletion from remote storage was begun", TierCount.DELETIONS),
    ("remotedeleteerrors", "Deletions that have failed", TierCount.DELETE_ERRORS),
    ("remotefetchrequests", "Reads of remote storage for fetches", TierCount.FETCHES),
    ("remotefetchbytes", "Bytes read from remote storage for fetches", TierCount.FETCHED_BYTES),
    ("remotefetcherrors", "Reads of remote storage that have failed", TierCount.FETCH_ERRORS),
    ("buildremotelogauxstaterequests", "States that a follower has asked remote storage for", TierCount.STATES),
    ("buildremotelogauxstateerrors", "Such states that it did not get", TierCount.STATE_ERRORS),
)


class _Seen(NamedTuple):
    """The remote storage of one partition, as a scrape finds it."""

    lag: CopyLag
    deleting_segments: int
    deleting_bytes: int
    segments: int
    size: int
    waits: bool


#: Kafka's gauges, which are sums over partitions: one for all topics, and one for each topic.
SUMS = (
    ("remotecopylagbytes", "Bytes of sealed segments that remote storage does not have", lambda each: each.lag.size),
    ("remotecopylagsegments", "Sealed segments that remote storage does not have", lambda each: each.lag.segments),
    ("remotedeletelagbytes", "Bytes of expired segments that are still in remote storage", lambda each: each.deleting_bytes),
    ("remotedeletelagsegments", "Expired segments that are still in remote storage", lambda each: each.deleting_segments),
    ("remotelogmetadatacount", "Segments that __remote_log_metadata names", lambda each: each.segments),
    ("remotelogsizebytes", "Bytes of the segments in remote storage", lambda each: each.size),
)  # fmt: skip


def tier_metrics(driver: TierDriver, counts: TierCounts, clock: Clock) -> Iterator[Family]:
    for name, doc, count in COUNTS:
        samples = [Sample({}, counts.of_all[count])]
        samples += [Sample({"topic": topic}, found[count]) for topic, found in counts.by_topic.items()]
        yield Family(f"{PREFIX}{name}", COUNTER, doc, samples)
    seen: defaultdict[str, list[_Seen]] = defaultdict(list)
    took_ms: defaultdict[str, float] = defaultdict(float)
    for led, tier in driver.led():
        began_ns = clock.mono_ns()
        seen[led.partition.topic].append(_seen(driver, led, tier, clock.wall_ms()))
        took_ms[led.partition.topic] += (clock.mono_ns() - began_ns) / 1e6
    samples = [Sample({}, sum(took_ms.values())), *(Sample({"topic": topic}, ms) for topic, ms in took_ms.items())]
    yield Family(
        f"{PREFIX}remotelogsizecomputationtime",
        GAUGE,
        "Milliseconds that the sizes in remote storage took to compute",
        samples,
    )
    for name, doc, value in SUMS:
        sums = {topic: sum(map(value, partitions)) for topic, partitions in seen.items()}
        samples = [Sample({}, sum(sums.values())), *(Sample({"topic": topic}, found) for topic, found in sums.items())]
        yield Family(f"{PREFIX}{name}", GAUGE, doc, samples)
    oldest = [Sample({"topic": topic}, max(each.lag.seconds for each in found)) for topic, found in seen.items()]
    yield Family(
        "ottla_tier_copy_lag_seconds",
        GAUGE,
        "For how long the oldest segment that is not copied has been sealed",
        oldest,
    )
    waits = [Sample({"topic": topic}, any(each.waits for each in found)) for topic, found in seen.items()]
    yield Family(TIER_WAITS, GAUGE, WAITS_DOC, waits)
    yield from driver.copy_quota.metrics()


def reader_metrics(times: Histogram, chunks: RemoteChunks) -> Iterator[Family]:
    """Yield Kafka's metrics of RemoteLogReader: the times of reads (in microseconds), and the threads that call the store for them."""
    yield from histograms(
        "kafka_log_remote_remotelogmanager_remotelogreaderfetchrateandtimems",
        "Milliseconds that a read of remote storage took",
        [({}, times)],
        0.001,
    )
    pool = "org_apache_kafka_storage_internals_log_remotestoragethreadpool_remotelogreader"
    yield gauge(
        f"{pool}taskqueuesize", "Calls of remote storage that wait for a thread to read with", chunks.waiting_calls
    )
    doc = "The share of the threads that read remote storage which is idle, from 0 to 1, at the scrape"
    yield gauge(f"{pool}avgidlepercent", doc, chunks.idle_share)


def _seen(driver: TierDriver, led: LedLog, tier: PartitionTier, wall_ms: int) -> _Seen:
    segments = driver.segments_of(led.partition)
    known = [] if segments is None else list(segments.by_id.values())
    size = sum(each.size for each in known if each.state is RemoteState.COPY_FINISHED)
    waits = bool(driver.waits or tier.waits)
    return _Seen(copy_lag(led.log, wall_ms), tier.deleting_segments, tier.deleting_bytes, len(known), size, waits)


def tier_states(driver: TierDriver, topic: str | None, wall_ms: int) -> Iterator[dict[str, Any]]:
    """Yield the known facts of each led partition, or of those of one topic, in the order of topics and partitions."""
    for led, tier in sorted(driver.led(), key=lambda each: (each[0].partition.topic, each[0].partition.index)):
        if topic not in (None, led.partition.topic):
            continue
        own, seen = led.log, _seen(driver, led, tier, wall_ms)
        yield {
            "topic": led.partition.topic,
            "partition": led.partition.index,
            "log_start": own.log_start_offset,
            "local_start": own.local_start_offset,
            "copied_to": own.remote_end if own.remote_end >= 0 else None,
            "last_stable": own.last_stable_offset,
            "high_watermark": own.high_watermark,
            "local_bytes": own.segments.size,
            "remote_bytes": seen.size,
            "remote_segments": seen.segments,
            "copies": own.config.is_copied,
            "lag_bytes": seen.lag.size,
            "lag_segments": seen.lag.segments,
            "lag_seconds": seen.lag.seconds,
            "failing": seen.waits,
            "waits": driver.waits or tier.waits or _quiet_reason(driver, led, seen.lag) or None,
        }


def _quiet_reason(driver: TierDriver, led: LedLog, lag: CopyLag) -> str:
    """Say why nothing is copied although nothing has failed, if something waits."""
    own = led.log
    if driver.segments_of(led.partition) is None:
        return "the records of __remote_log_metadata are not read to their end yet"
    if not lag.segments:
        return ""
    first = own.segments.floor_index(max(own.remote_end + 1, own.local_start_offset))
    end = own.segments.next_base(first)
    if end is not None and own.last_stable_offset < end <= own.high_watermark:
        return f"a transaction has not ended at offset {own.last_stable_offset}"
    if driver.copy_quota.wait_ms():
        return f"{driver.copy_quota.properties.limit} is used up for now"
    return ""
