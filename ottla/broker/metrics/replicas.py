"""Metrics of a broker's partitions and sessions, counted at a scrape: nothing here is on the path of a request."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ottla.broker.components import BrokerComponents
from ottla.broker.fetch.session_cache import FetchSessionCache
from ottla.broker.replication.partition import Partition
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.publisher import new_turn
from ottla.protocol.work import Work
from ottla.server.metrics import Family, counter, gauge
from ottla.server.network.network_metrics import Times, time_metrics
from ottla.server.quotas.bounds import bound_metrics

#: Name after kafka_server_replicamanager_, what it says, which partitions count.
PARTITION_GAUGES: tuple[tuple[str, str, Callable[[Partition], bool]], ...] = (
    ("partitioncount", "Partitions with a replica here", lambda p: True),
    ("leadercount", "Partitions led here", lambda p: p.is_leader),
    ("underreplicatedpartitions", "Led here, with replicas out of sync", lambda p: p.is_leader and len(p.isr) < len(p.replicas)),
    ("underminisrpartitioncount", "Led here, with fewer in sync than required", lambda p: p.is_leader and len(p.isr) < p.min_isr),
    ("atminisrpartitioncount", "Led here, with just as many in sync as required", lambda p: p.is_leader and len(p.isr) == p.min_isr),
    ("offlinereplicacount", "Replicas whose log directory failed", lambda p: p.offline),
)  # fmt: skip


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
