"""Metrics of a broker's partitions and sessions, counted at a scrape: nothing here is on the path of a request."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from ottla.broker.components import BrokerComponents
from ottla.broker.fetch.session_cache import FetchSessionCache
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.replicas import Replicas
from ottla.controller.metadata.image import MetadataDelta, MetadataImage
from ottla.controller.metadata.loader import new_turn
from ottla.controller.metadata.topics import NO_LEADER
from ottla.protocol.replica_sets import missing_replicas, original_replicas
from ottla.protocol.work import Work
from ottla.server.client_bounds import bound_metrics
from ottla.server.clock import Clock
from ottla.server.metrics import COUNTER, GAUGE, Family, Sample, counter, gauge
from ottla.server.network.network_metrics import Times, time_metrics
from ottla.storage.directories.open_logs import OpenLogs
from ottla.storage.log.log import Log

#: Name after kafka_server_replicamanager_, what it says, which partitions count.
PARTITION_GAUGES: tuple[tuple[str, str, Callable[[Partition], bool]], ...] = (
    ("partitioncount", "Partitions with a replica here", lambda p: True),
    ("leadercount", "Partitions led here", lambda p: p.is_leader),
    ("underreplicatedpartitions", "Led here, with replicas out of sync", lambda p: p.is_leader and bool(_missing(p))),
    ("underminisrpartitioncount", "Led here, with fewer in sync than required", lambda p: p.is_leader and p.isr.is_under_min),
    ("atminisrpartitioncount", "Led here, with just as many in sync as required", lambda p: p.is_leader and len(p.isr.members) == p.isr.min_size),
    ("reassigningpartitions", "Led here, with replicas that a reassignment adds or removes", lambda p: p.is_leader and _is_moving(p)),
    ("offlinereplicacount", "Replicas whose log directory failed", lambda p: p.offline),
)  # fmt: skip


def _missing(partition: Partition) -> tuple[int, ...]:
    return missing_replicas(partition.replicas, partition.adding_replicas, partition.isr.members)


def _is_moving(partition: Partition) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


def broker_metrics(broker: BrokerComponents) -> Iterator[Family]:
    partitions = list(broker.replicas)
    for name, doc, counts in PARTITION_GAUGES:
        yield gauge(f"kafka_server_replicamanager_{name}", doc, sum(map(counts, partitions)))
    transactional_ids = broker.transactions.coordinator.config.transactional_ids
    yield from bound_metrics([broker.groups.config.groups, transactional_ids, broker.replicas.producer_ids])
    sessions = broker.fetch_sessions
    cache = "kafka_server_fetchsessioncache"
    yield gauge(f"{cache}_numincrementalfetchsessions", "Fetch sessions", len(sessions))
    yield gauge(f"{cache}_numincrementalfetchpartitionscached", "Partitions in them", sessions.partition_count)
    yield gauge(f"{cache}_incrementalfetchsessionevictions", "Sessions that gave way to others", sessions.evictions)
    yield from delayed_fetch_metrics(sessions)
    pauses = "Times that a librdkafka consumer with a backlog has paused because its queue was full"
    yield counter("ottla_fetch_pauses", pauses, sessions.pacing.pauses)
    yield counter("ottla_fetches_paced", "Fetches that waited, so that it need not pause", sessions.pacing.paced)
    yield gauge(
        "kafka_log_logmanager_offlinelogdirectorycount",
        "Log directories that failed",
        len(broker.replicas.logs.open.offline_directories),
    )
    for directory in broker.replicas.logs.directories:
        yield gauge(
            "kafka_log_logcleanermanager_uncleanable_partitions_count",
            "Compacted partitions that the log cleaner failed at, and passes over",
            sum(log.cleaning.uncleanable is not None for log in broker.replicas.logs.open.in_directory(directory)),
            logdirectory=directory.path,
        )


def delayed_fetch_metrics(sessions: FetchSessionCache) -> Iterator[Family]:
    """RemoteTimeMs of Fetch, under Kafka's three names: the time in the purgatory of the fetches that waited there."""
    consumers, followers = sessions.consumer_delays, sessions.follower_delays
    both = [a + b for a, b in zip(consumers.buckets, followers.buckets, strict=True)]
    times = [
        Times("Fetch", both, consumers.count + followers.count, consumers.total_ns + followers.total_ns),
        Times("FetchConsumer", consumers.buckets, consumers.count, consumers.total_ns),
        Times("FetchFollower", followers.buckets, followers.count, followers.total_ns),
    ]
    yield from time_metrics(
        "remotetimems", "Milliseconds that delayed requests waited", [each for each in times if each.requests]
    )


class IsrChangeCounts:
    """ISR churn: how often sets of in-sync replicas of partitions led here lost or gained members, for any reason.

    A publisher's listener, and a source of metrics.
    """

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.shrinks = 0
        self.expands = 0

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> Work[None]:
        turn = new_turn()
        for changed in delta.changed_topics.values():
            for index, after in changed.partition_changes.items():
                if turn.spend(1):
                    yield None
                before = changed.image.partitions.get(index)
                if before is None or after.leader != self.node_id:
                    continue
                self.shrinks += not set(before.isr) <= set(after.isr)
                self.expands += not set(after.isr) <= set(before.isr)

    def __call__(self) -> Iterator[Family]:
        prefix = "kafka_server_replicamanager"
        yield counter(f"{prefix}_isrshrinks", "Times that a replica fell out of sync", self.shrinks)
        yield counter(f"{prefix}_isrexpands", "Times that a replica came back in sync", self.expands)


class UnflushedAges:
    """The age of the oldest record that is only in the page cache: a power loss of this machine would destroy it.

    As in Kafka a record is acknowledged before it is flushed, and its other replicas protect it. Appends are not timed: a
    scrape remembers the recovery point of each log that it finds unflushed, and the age begins with the first scrape that found it
    there.
    """

    def __init__(self, clock: Clock, logs: OpenLogs) -> None:
        self._clock = clock
        self._logs = logs
        #: Log -> its recovery point, and the monotonic time at which it was first seen there with unflushed records.
        self._since: dict[Log, tuple[int, int]] = {}

    def __call__(self) -> Iterator[Family]:
        now_ms = self._clock.mono_ms()
        before, self._since = self._since, {}
        samples = []
        for directory in self._logs.directories:
            oldest_ms = now_ms
            for log in self._logs.in_directory(directory):
                if log.recovery_point >= log.log_end_offset:
                    continue
                point, since_ms = before.get(log, (-1, now_ms))
                self._since[log] = (log.recovery_point, since_ms if point == log.recovery_point else now_ms)
                oldest_ms = min(oldest_ms, self._since[log][1])
            samples.append(Sample({"logdirectory": directory.path}, (now_ms - oldest_ms) / 1_000))
        doc = "Seconds for which the oldest unflushed record of a log directory has been seen by scrapes"
        yield Family("ottla_log_unflushed_age_seconds", GAUGE, doc, samples)


PORTION = 100


#: The names of kafka_exporter, and the three of Kafka's own that are per partition; in the order of `_values`.
LEADER_GAUGES = (
    ("kafka_topic_partition_current_offset", "The high watermark"),
    ("kafka_topic_partition_oldest_offset", "The log start offset"),
    ("kafka_topic_partition_in_sync_replica", "Replicas in sync"),
    ("kafka_topic_partition_leader", "The leader's node id"),
    ("kafka_topic_partition_leader_is_preferred", "1 if the first replica leads"),
    ("kafka_topic_partition_replicas", "Replicas, without those that a reassignment is adding"),
    ("kafka_topic_partition_under_replicated_partition", "1 if replicas are out of sync"),
    ("kafka_cluster_partition_underreplicated", "1 if replicas are out of sync"),
    ("kafka_cluster_partition_underminisr", "1 if fewer replicas are in sync than required"),
    ("kafka_cluster_partition_atminisr", "1 if just as many replicas are in sync as required"),
    ("kafka_cluster_partition_insyncreplicascount", "Replicas in sync"),
    ("kafka_cluster_partition_replicascount", "Replicas, without those that a reassignment is adding"),
)


def partition_metrics(replicas: Replicas, partitions_max: int) -> Iterator[Family]:
    """Yield one sample per partition and name, from the partition's leader alone, so that three scraped brokers do not count thrice.

    Given in portions: a broker may have thousands, and a scrape is not to hold up its clients. A partition is 14 samples and 0.9 KB
    of a scrape, so that ottla.metrics.partitions.max bounds how many there are.
    """
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
    there = [(p, p.log, {"topic": p.topic, "partition": str(p.index)}) for p in partitions if p.log is not None]
    led = [(labels, _values(p, log)) for p, log, labels in there if p.is_leader]
    for position, (name, doc) in enumerate(LEADER_GAUGES):
        yield Family(name, GAUGE, doc, [Sample(labels, values[position]) for labels, values in led])
    sizes = [Sample(labels, log.segments.size) for _, log, labels in there]
    yield Family("kafka_log_log_size", GAUGE, "Bytes of the log", sizes)
    ends = [Sample(labels, log.log_end_offset) for _, log, labels in there]
    yield Family("kafka_log_log_logendoffset", GAUGE, "The offset that the next record gets", ends)


def _values(partition: Partition, log: Log) -> tuple[int, ...]:
    in_sync, behind = len(partition.isr.members), int(bool(_missing(partition)))
    replicas = len(original_replicas(partition.replicas, partition.adding_replicas))
    return (
        log.high_watermark,
        log.log_start_offset,
        in_sync,
        partition.leader_id,
        int(partition.leader_id == (partition.replicas[0] if partition.replicas else NO_LEADER)),
        replicas,
        behind,
        behind,
        int(in_sync < partition.isr.min_size),
        int(in_sync == partition.isr.min_size),
        in_sync,
        replicas,
    )


#: Name after kafka_server_brokertopicmetrics_, what it says, the partition's count.
TRAFFIC: tuple[tuple[str, str, str], ...] = (
    ("messagesin", "Messages appended", "messages_in"),
    ("bytesin", "Bytes appended", "bytes_in"),
    ("bytesout", "Bytes given to consumers", "bytes_out"),
    ("replicationbytesout", "Bytes given to followers", "replication_bytes_out"),
    ("totalproducerequests", "Appends to partitions", "appends"),
    ("totalfetchrequests", "Reads of partitions that found something", "reads"),
    ("failedproducerequests", "Appends that were refused", "failed_appends"),
    ("failedfetchrequests", "Reads that were refused", "failed_reads"),
)
COUNTS = tuple(attribute for _, _, attribute in TRAFFIC)
#: Followers' reads are shown for all topics only, as in Kafka.
WITHOUT_TOPICS = frozenset({"replicationbytesout"})
#: kafka-ui reads these; the label is the name of Kafka's meter.
RATES = (("BytesInPerSec", "bytes_in"), ("BytesOutPerSec", "bytes_out"))
RATE_WINDOW_S = 15 * 60.0

Counts = list[int]


@dataclass(slots=True)
class _Rate:
    """An exponential moving average over the window, moved on at every scrape."""

    value: float = 0.0
    count: int = 0
    started: bool = False

    def update(self, count: int, seconds: float) -> None:
        if seconds <= 0:
            self.count = count
            return
        now = max(0, count - self.count) / seconds
        # The average starts with the first value: from zero it would need half an hour to be right.
        weight = 1 - math.exp(-seconds / RATE_WINDOW_S) if self.started else 1.0
        self.value += weight * (now - self.value)
        self.count, self.started = count, True


@dataclass(slots=True)
class Traffic:
    """A source of metrics: the traffic of a broker's partitions, by topic: messages, bytes and requests, and moving averages of bytes.

    Partitions count in plain ints. The counts of a removed partition are lost with it, so the sums over all topics, which must
    never decrease, keep its last values.
    """

    replicas: Replicas
    clock: Clock
    _seen: dict[int, tuple[Partition, Counts]] = field(default_factory=dict)
    _gone: Counts = field(default_factory=lambda: [0] * len(COUNTS))
    _rates: dict[tuple[str, str], _Rate] = field(default_factory=lambda: defaultdict(_Rate))
    _last_ms: int = -1

    def __call__(self) -> Iterator[Family]:
        topics = self._sum_up()
        total = list(self._gone)
        for counts in topics.values():
            total = [a + b for a, b in zip(total, counts, strict=True)]
        for position, (name, doc, _) in enumerate(TRAFFIC):
            samples = [Sample({}, total[position])]
            if name not in WITHOUT_TOPICS:
                samples += [Sample({"topic": topic}, counts[position]) for topic, counts in topics.items()]
            yield Family(f"kafka_server_brokertopicmetrics_{name}", COUNTER, doc, samples)
        yield self._fifteen_minute_rates(topics, total)

    def _sum_up(self) -> dict[str, Counts]:
        seen: dict[int, tuple[Partition, Counts]] = {}
        topics: dict[str, Counts] = {}
        for partition in self.replicas:
            counts = [getattr(partition, attribute) for attribute in COUNTS]
            # The object is kept with its id, because the id of a freed object may become another object's.
            seen[id(partition)] = (partition, counts)
            if any(counts):
                known = topics.setdefault(partition.topic, [0] * len(COUNTS))
                for position, count in enumerate(counts):
                    known[position] += count
        for key, (_, counts) in self._seen.items():
            if key not in seen:
                self._gone = [a + b for a, b in zip(self._gone, counts, strict=True)]
        self._seen = seen
        return topics

    def _fifteen_minute_rates(self, topics: dict[str, Counts], total: Counts) -> Family:
        now_ms = self.clock.mono_ms()
        seconds = (now_ms - self._last_ms) / 1000 if self._last_ms >= 0 else 0.0
        self._last_ms = now_ms
        samples = []
        for gone in [key for key in self._rates if key[1] and key[1] not in topics]:
            del self._rates[gone]
        for name, attribute in RATES:
            position = COUNTS.index(attribute)
            for topic, counts in [("", total), *topics.items()]:
                rate = self._rates[name, topic]
                rate.update(counts[position], seconds)
                labels = {"name": name, "topic": topic} if topic else {"name": name}
                samples.append(Sample(labels, rate.value))
        doc = "Bytes a second, averaged over a quarter of an hour"
        return Family("kafka_server_BrokerTopicMetrics_FifteenMinuteRate", GAUGE, doc, samples)
