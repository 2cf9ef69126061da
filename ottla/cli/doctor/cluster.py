"""The cluster's side of `ottla doctor`: states of a cluster that lose records, stop writes, or are uneven.

`check_cluster` reads the cluster, and the judgements are pure functions of what was read. If this user may not read something,
that is a finding too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from ottla.cli.doctor.findings import DoctorFinding
from ottla.client.admin_listeners import AdminSample, scrape, table_states, tier_states
from ottla.client.cluster import ClusterClient, NoConnection
from ottla.client.cluster_state import (
    FULL_BYTES,
    MIN_ISR,
    VOTER_SILENT_MS_MAX,
    FeatureLevels,
    describe_cluster,
    describe_features,
    describe_log_dirs,
    describe_quorum,
)
from ottla.client.configs import describe_topics_config
from ottla.client.errors import failure
from ottla.client.failures import Failure, counted
from ottla.client.moves import throttled_topics
from ottla.client.partitions import NO_LEADER, TopicPartition
from ottla.client.topics import adding_replicas, list_reassignments
from ottla.client.transactions import OPEN_STATES, list_transactions
from ottla.client.troubles import table_troubles, tier_troubles
from ottla.protocol.messages.describe_cluster import DescribeClusterBroker
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsResult
from ottla.protocol.messages.describe_quorum import PartitionDataResponse
from ottla.protocol.messages.metadata import MetadataResponseTopic
from ottla.protocol.replica_sets import missing_replicas, original_replicas

UNCLEAN = "unclean.leader.election.enable"
#: A disk with a smaller share of free bytes is nearly full.
FREE_SHARE_MIN = 0.1
#: The leaders are unbalanced if a larger share of partitions is not led by the preferred leader:
#: leader.imbalance.per.broker.percentage.
UNBALANCED_SHARE = 0.1
#: A broker is heavy if it holds more than this many times the mean, and enough bytes for a move to be worth it.
HEAVY = 1.5
HEAVY_BYTES_MIN = 100 * 1024 * 1024
OPEN_TRANSACTION_MS = 15 * 60_000
#: A finding about many things names this many.
NAMED_MAX = 3
SOFTWARE_METRIC = "kafka_server_socket_server_metrics_connections_software"
BUILD_METRIC = "ottla_build_info"
#: Values of the label python_build that mean a slow interpreter (`ottla/node/python_build.py`).
SLOW_BUILDS = ("no profile", "debug")
LIBRDKAFKA = "librdkafka"
#: Older releases than these count as old, by the name that each library sends (KIP-511).
OLDEST = {"apache-kafka-java": (3, 0), LIBRDKAFKA: (2, 0), "kafka-python": (2, 1), "sarama": (1, 40), "kgo": (1, 15)}

Passed = Callable[[str], None]


async def check_cluster(cluster: ClusterClient, admin: Mapping[int, str], passed: Passed) -> list[DoctorFinding]:
    """Check the cluster as a whole. `admin` are the addresses of admin listeners by node."""
    found: list[DoctorFinding] = []
    topics = (await cluster.metadata(None)).topics

    async def part(name: str, look: Callable[[], Awaitable[list[DoctorFinding]]]) -> None:
        try:
            async with cluster.limit():
                some = await look()
        except Failure as refused:
            some = [DoctorFinding("not-known", name, refused.cause)]
        except TimeoutError:
            some = [
                DoctorFinding(
                    "not-known", name, f"no answer within {cluster.timeout_ms / 1000:g} s while {cluster.doing}"
                )
            ]
        if not some:
            passed(f"{name}: nothing is wrong")
        found.extend(some)

    async def brokers() -> list[DoctorFinding]:
        return judge_brokers((await describe_cluster(cluster)).brokers)

    async def quorum() -> list[DoctorFinding]:
        return judge_quorum(await describe_quorum(cluster))

    async def partitions() -> list[DoctorFinding]:
        names = [topic.name or "" for topic in topics if not topic.error_code]
        min_isr = await describe_topics_config(cluster, names, MIN_ISR)
        unclean = await describe_topics_config(cluster, names, UNCLEAN)
        # A topic that was deleted meanwhile is in no danger. Often it is the topic of the doctor's own record.
        readable = [topic for topic in topics if topic.name in min_isr]
        numbers = {name: int(value) if value.isdecimal() else 1 for name, value in min_isr.items()}
        adding = await adding_replicas(cluster, readable)
        return judge_partitions(readable, numbers, {name for name, value in unclean.items() if value == "true"}, adding)

    async def disks() -> list[DoctorFinding]:
        directories: dict[int, Sequence[DescribeLogDirsResult]] = {}
        for node in sorted(cluster.brokers):
            with suppress(NoConnection):  # a broker that cannot be reached is a finding of its own
                directories[node] = await describe_log_dirs(cluster, node)
        return judge_directories(directories)

    async def throttles() -> list[DoctorFinding]:
        names = await throttled_topics(cluster)
        return [many("throttle-left", names)] if names and not await list_reassignments(cluster) else []

    async def transactions() -> list[DoctorFinding]:
        open_long = await list_transactions(cluster, states=OPEN_STATES, open_ms_min=OPEN_TRANSACTION_MS)
        return [many("transaction-open", [row.transactional_id for row in open_long])] if open_long else []

    async def features() -> list[DoctorFinding]:
        nodes = []
        for node in sorted(cluster.brokers):
            with suppress(NoConnection):
                nodes.append(await describe_features(cluster, node))
        return judge_features([each.levels for each in nodes])

    looks: dict[str, Callable[[], Awaitable[list[DoctorFinding]]]] = {
        "brokers": brokers, "quorum": quorum, "partitions": partitions, "disks": disks, "throttles": throttles,
        "transactions": transactions, "features": features, "client libraries and Python": partial(_nodes, cluster, admin), "tables": partial(_tables, admin),
        "tiers": partial(_tiers, admin),
    }  # fmt: skip
    for name, look in looks.items():
        await part(name, look)
    return found


async def _tables(admin: Mapping[int, str]) -> list[DoctorFinding]:
    return [
        DoctorFinding(each.kind, each.topic, each.text)
        for state in await table_states(admin)
        for each in table_troubles(state)
    ]


async def _tiers(admin: Mapping[int, str]) -> list[DoctorFinding]:
    states, _ = await tier_states(admin)
    return [DoctorFinding(each.kind, each.topic, each.text) for each in tier_troubles(states)]


async def _nodes(cluster: ClusterClient, admin: Mapping[int, str]) -> list[DoctorFinding]:
    samples: dict[int, list[AdminSample]] = {}
    for node, address in admin.items():
        with suppress(Failure):
            samples[node] = await scrape(address, (SOFTWARE_METRIC, BUILD_METRIC), cluster.timeout_ms / 1000)
    found = judge_builds(samples)
    everywhere = [sample for each in samples.values() for sample in each]
    if not any(sample.name == SOFTWARE_METRIC for sample in everywhere):
        return [*found, DoctorFinding("clients-not-known", "client libraries", "no broker says which are connected")]
    return found + judge_clients(everywhere)


# -- Judgements --------------------------------------------------------------------------------------------------------


def many(kind: str, names: Iterable[str]) -> DoctorFinding:
    """Return one finding about several things. It names the first of them."""
    listed = sorted(set(names))
    more = f" and {len(listed) - NAMED_MAX} more" if len(listed) > NAMED_MAX else ""
    return DoctorFinding(kind, ", ".join(listed[:NAMED_MAX]) + more, f"{len(listed)} in all")


def judge_brokers(brokers: Iterable[DescribeClusterBroker]) -> list[DoctorFinding]:
    """Judge the registrations of brokers."""
    return [
        DoctorFinding("broker-fenced", f"broker {row.broker_id}", f"{row.host}:{row.port} sends no heartbeats")
        for row in sorted(brokers, key=lambda row: row.broker_id)
        if row.is_fenced
    ]


def judge_quorum(quorum: PartitionDataResponse) -> list[DoctorFinding]:
    """Judge the voters of the metadata's quorum."""
    if quorum.leader_id == NO_LEADER:
        return [DoctorFinding("quorum-no-leader", "quorum", f"epoch {quorum.leader_epoch}")]
    voters = {row.replica_id: row.last_fetch_timestamp for row in quorum.current_voters}
    newest_ms = max(voters.values(), default=0)
    found = [
        DoctorFinding(
            "quorum-voter-behind", f"controller {voter}", f"its last fetch is {(newest_ms - at_ms) / 1000:.0f} s ago"
        )
        for voter, at_ms in sorted(voters.items())
        if at_ms >= 0 and voter != quorum.leader_id and newest_ms - at_ms > VOTER_SILENT_MS_MAX
    ]
    if len(voters) == 1:
        found.append(DoctorFinding("quorum-of-one", f"controller {next(iter(voters))}", "it is the only voter"))
    elif len(voters) % 2 == 0:
        found.append(
            DoctorFinding(
                "quorum-even", "quorum", f"{len(voters)} voters bear {counted((len(voters) - 1) // 2, 'failure')}"
            )
        )
    return found


def judge_partitions(
    topics: Sequence[MetadataResponseTopic],
    min_isr: Mapping[str, int],
    unclean: set[str],
    adding: Mapping[TopicPartition, Collection[int]],
) -> list[DoctorFinding]:
    """Judge the places of replicas, which of them are in sync, and the settings that may lose records.

    Replicas that a move is adding do not count.
    """
    places: dict[str, list[str]] = {}
    names: dict[str, list[str]] = {}
    led, led_by_another = 0, []
    for topic in topics:
        name = topic.name or ""
        least = min_isr.get(name, 1)
        original = {
            part.partition_index: original_replicas(part.replica_nodes, adding.get((name, part.partition_index), ()))
            for part in topic.partitions
        }
        replicas = min(map(len, original.values()), default=0)
        for part in topic.partitions:
            place = f"{name}-{part.partition_index}"
            if part.leader_id == NO_LEADER:
                places.setdefault("partition-offline", []).append(place)
                continue
            led += 1
            if part.replica_nodes[:1] != [part.leader_id]:
                led_by_another.append(place)
            if len(part.isr_nodes) < min(least, len(original[part.partition_index])):
                places.setdefault("under-min-isr", []).append(place)
            elif missing_replicas(original[part.partition_index], (), part.isr_nodes):
                places.setdefault("under-replicated", []).append(place)
        if replicas == 1:
            names.setdefault("one-replica", []).append(name)
        elif replicas > 1 and least == 1:
            names.setdefault("min-isr-one", []).append(name)
        elif replicas > 1 and least >= replicas:
            names.setdefault("min-isr-all", []).append(name)
        if name in unclean:
            names.setdefault("unclean-election", []).append(name)
    found = [many(kind, rows) for kind, rows in {**places, **names}.items()]
    if len(led_by_another) > led * UNBALANCED_SHARE:
        found.append(many("leaders-unbalanced", led_by_another))
    return found


def judge_directories(directories: Mapping[int, Sequence[DescribeLogDirsResult]]) -> list[DoctorFinding]:
    """Judge the disks of the brokers, and how evenly they are used."""
    found: list[DoctorFinding] = []
    held: Counter[int] = Counter()
    for broker, rows in sorted(directories.items()):
        held[broker] = 0
        for row in rows:
            place = f"broker {broker}, {row.log_dir}"
            held[broker] += sum(part.partition_size for topic in row.topics for part in topic.partitions)
            if row.error_code:
                found.append(DoctorFinding("directory-offline", place, failure("", row.error_code).cause.strip(": ")))
            elif 0 <= row.usable_bytes < FULL_BYTES:
                found.append(DoctorFinding("disk-full", place, f"{row.usable_bytes} bytes are free"))
            elif 0 <= row.usable_bytes < row.total_bytes * FREE_SHARE_MIN:
                share = row.usable_bytes / row.total_bytes
                found.append(
                    DoctorFinding("disk-nearly-full", place, f"{share:.0%} of {row.total_bytes} bytes are free")
                )
    mean = sum(held.values()) / len(held) if held else 0
    for broker, amount in held.items():
        if len(held) > 1 and amount > mean * HEAVY and amount - mean > HEAVY_BYTES_MIN:
            found.append(
                DoctorFinding("brokers-unbalanced", f"broker {broker}", f"{amount} bytes, and {mean:.0f} on average")
            )
    return found


def judge_features(nodes: Sequence[Mapping[str, FeatureLevels]]) -> list[DoctorFinding]:
    """Judge whether all brokers have higher feature levels than the cluster uses."""
    found = []
    for name in sorted({name for levels in nodes for name in levels}):
        rows = [levels[name] for levels in nodes if name in levels]
        highest, finalized = min(row.highest for row in rows), rows[0].finalized
        if len(rows) == len(nodes) and finalized < highest:
            found.append(DoctorFinding("features-behind", name, f"level {finalized}, and all brokers serve {highest}"))
    return found


def judge_builds(samples: Mapping[int, Iterable[AdminSample]]) -> list[DoctorFinding]:
    """Judge the Python that each node runs on.

    `samples` are from the node's admin listener; older nodes do not report their build.
    """
    return [
        DoctorFinding("slow-python", f"node {node}", f"Python {sample.labels.get('python')}: {build}")
        for node, each in sorted(samples.items())
        for sample in each
        if sample.name == BUILD_METRIC and (build := sample.labels.get("python_build")) in SLOW_BUILDS
    ]


def judge_clients(samples: Iterable[AdminSample]) -> list[DoctorFinding]:
    """Judge the libraries of the clients that are connected."""
    counts: Counter[tuple[str, str]] = Counter()
    for sample in samples:
        if sample.name == SOFTWARE_METRIC:
            labels = sample.labels
            counts[labels.get("client_software_name", ""), labels.get("client_software_version", "")] += int(
                sample.value
            )
    found = []
    for (name, version), count in sorted(counts.items()):
        place, seen = f"{name} {version}", counted(count, "connection")
        if (numbers := _numbers(version)) is not None and name in OLDEST and numbers < OLDEST[name]:
            found.append(DoctorFinding("old-client", place, seen))
        if name == LIBRDKAFKA or name.startswith(("confluent-kafka", "node-rdkafka")):
            found.append(DoctorFinding("librdkafka-backoff", place, seen))
    return found


def _numbers(version: str) -> tuple[int, int] | None:
    parts = version.removeprefix("v").split(".")
    if len(parts) < 2 or not all(part.isdecimal() and len(part) < 6 for part in parts[:2]):
        return None
    return int(parts[0]), int(parts[1])
