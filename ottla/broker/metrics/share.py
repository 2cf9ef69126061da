"""Share groups under Kafka's names: the share partitions that this broker leads, and the shards of its share coordinator.

Kafka's FetchLockTimeMs and FetchLockRatio have no counterpart, because there is no lock between the fetches of a share partition.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.broker.coordinator.context import LoadTimes, State
from ottla.broker.share.coordinator.share_coordinator import ShareCoordinator
from ottla.broker.share.leaders import ShareLeaders
from ottla.broker.share.led_partition import LedSharePartition, Phase
from ottla.broker.share.record_state import AcknowledgeType
from ottla.server.metrics import COUNTER, GAUGE, Family, Sample, counter, gauge, histograms

GROUPS = "kafka_server_sharegroupmetrics"
PARTITIONS = "kafka_server_sharepartitionmetrics"
SESSIONS = "kafka_server_sharesessioncache"
COORDINATOR = "kafka_server_sharecoordinatormetrics"


def share_metrics(leaders: ShareLeaders, coordinator: ShareCoordinator) -> Iterator[Family]:
    yield from _of_groups(leaders)
    led = [(_labels(each), each) for each in leaders.led() if each.phase is Phase.ACTIVE]
    sizes = [Sample(labels, each.state.in_flight.size) for labels, each in led]
    yield Family(f"{PARTITIONS}_inflightmessagecount", GAUGE, "Records in flight of the share partition", sizes)
    runs = [Sample(labels, len(each.state.in_flight.runs)) for labels, each in led]
    yield Family(f"{PARTITIONS}_inflightbatchcount", GAUGE, "Batches in flight of the share partition", runs)
    late = [Sample(labels, each.timed_out) for labels, each in led]
    yield Family(f"{PARTITIONS}_acquisitionlocktimeout", COUNTER, "Records whose acquisition lock has timed out", late)
    batches = [(labels, each.batch_sizes) for labels, each in led]
    yield from histograms(f"{PARTITIONS}_inflightbatchmessagecount", "Records of a batch when it was acquired", batches)
    yield from _of_coordinator(coordinator)


def _labels(led: LedSharePartition) -> dict[str, str]:
    return {"group": led.key.group_id, "topic": led.partition.topic, "partition": str(led.partition.index)}


def _of_groups(leaders: ShareLeaders) -> Iterator[Family]:
    counts = leaders.counts
    kinds = (kind for kind in AcknowledgeType if kind is not AcknowledgeType.GAP)
    acknowledged = [Sample({"ackType": kind.name.capitalize()}, counts.acknowledged[kind]) for kind in kinds]
    yield Family(f"{GROUPS}_recordacknowledgements", COUNTER, "Records acknowledged, by type", acknowledged)
    for name, text, by_group in (
        ("recordcount", "Dead letters written", counts.dead_letters),
        ("totalproducerequests", "Batches of dead letters that were to be produced", counts.dead_letter_requests),
        ("failedproducerequests", "Batches of dead letters that have failed for good", counts.dead_letter_failures),
    ):
        letters = [Sample({"group": group_id}, count) for group_id, count in by_group.items()]
        yield Family(f"{GROUPS}_deadletterqueue{name}", COUNTER, text, letters)
    yield from _loading(f"{GROUPS}_partitionloadtimems", "a share partition", counts.load_times)
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
        yield from histograms(f"{GROUPS}_{name}", text, [({"group": key}, each) for key, each in by_group_id.items()])
    sessions = leaders.sessions
    yield gauge(f"{SESSIONS}_numsharesessions", "Share sessions", len(sessions))
    yield gauge(f"{SESSIONS}_numsharepartitionscached", "Partitions in share sessions", sessions.partition_count())


def _of_coordinator(coordinator: ShareCoordinator) -> Iterator[Family]:
    runtime = coordinator.runtime
    states = runtime.states()
    shown = (State.LOADING, State.ACTIVE, State.FAILED)
    partitions = [Sample({"state": state.name.lower()}, states[state]) for state in shown]
    yield Family(f"{COORDINATOR}_num_partitions", GAUGE, "Partitions of __share_group_state by state", partitions)
    yield from _loading(f"{COORDINATOR}_partition_load_time", "a partition", runtime.load_times)
    yield counter(f"{COORDINATOR}_write", "WriteShareGroupState requests", coordinator.writes)


def _loading(name: str, what: str, times: LoadTimes) -> Iterator[Family]:
    yield gauge(f"{name}_max", f"Milliseconds that {what} took to load, at most", times.max_ms)
    average_ms = times.sum_ms / times.count if times.count else 0
    yield gauge(f"{name}_avg", f"Milliseconds that {what} took to load", average_ms)
