"""docs/METRICS.md: every metric that the nodes of a small simulated cluster show, by the kind of node that has it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryDataRequest,
    OpData,
)
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.server.loop_watch import LoopWatch
from ottla.server.metrics import COUNTER, Family
from ottla.server.network.client import Channel
from ottla.server.quotas.clients import CLIENT_QUOTAS
from tests.broker.records import batch
from tests.sim.cluster import BROKER_PORT, SimNode
from tests.sim.harness import TOPIC, SimClusterHarness
from tests.sim.loop import run

ROLES = {1: "controller", 2: "broker", 3: "broker"}
#: The listener of the checks has its own sources.
SETTINGS = {
    "ottla.admin.listener": "0.0.0.0:9644",
    "offsets.topic.replication.factor": "1",
    "remote.log.storage.system.enable": "true",
    "ottla.tier.location": "/segments",
}

INTRODUCTION = (
    "# Metrics",
    "<!-- Written by tests/rules/test_docs.py from a simulated cluster: with UPDATE=1 it writes it again. -->",
    "",
    "What a node shows to Prometheus at `/metrics` (`ottla.admin.listener`). The names are those"
    " that Kafka's metrics have there by Strimzi's rules of the JMX exporter, so that its dashboards and alerts work; of its"
    " KRaft dashboard, the average latency of commits and four metrics of the channels between voters are missing."
    " Confluent's stack has other rules (names without `_total` at their end), and 30 to 44 names of its boards are missing."
    " Metrics that Kafka does not have begin with ottla. Dashboards and alerts are in `deploy/monitoring/`. What clients push"
    " (KIP-714) is shown beside these as `kafka_client_*`, and only for the subscriptions that ask for it.",
    "",
    "The last column says which nodes show the metric: brokers, controllers, or all. A node with both roles shows both.",
    "",
)


class Metric(NamedTuple):
    """A row of the page; its first field sorts the rows and names the table."""

    type: str
    name: str
    doc: str
    kind: str
    nodes: str


def metrics_page() -> str:
    lines = [*INTRODUCTION]
    for heading, metrics in groupby(sorted(run(_metrics())), key=lambda metric: metric.type):
        lines += [f"## {heading}", "", "| metric | is | kind | nodes |", "| --- | --- | --- | --- |"]
        lines += [f"| {metric.name} | {metric.doc} | {metric.kind} | {metric.nodes} |" for metric in metrics]
        lines.append("")
    return "\n".join(lines)


async def _metrics() -> list[Metric]:
    harness = SimClusterHarness(ROLES, SETTINGS)
    harness.cluster.start()
    assert await harness.cluster.all_serve(10)
    await harness.admin.spawn(_use(harness), "uses")
    watch = list(LoopWatch(asyncio.get_running_loop())())
    shown: dict[str, tuple[Family, set[str]]] = {}
    for node in harness.cluster.nodes:
        assert node.server is not None
        for family in (*node.server.metrics.families(), *watch):
            shown.setdefault(family.name, (family, set()))[1].add(ROLES[node.number])
    return list(_rows(shown))


async def _use(harness: SimClusterHarness) -> None:
    """Make partitions, a loaded group coordinator, and clients with each quota, because some metrics exist only then."""
    admin = harness.admin
    quotas = [OpData(key=key, value=1e6) for key in CLIENT_QUOTAS]
    any_client = [EntityData(entity_type="client-id", entity_name=None)]
    await admin.ask_any(AlterClientQuotasRequest(entries=[EntryDataRequest(entity=any_client, ops=quotas)]))
    assert await admin.create(TOPIC, 1, {}, 2)
    await harness.until("the topic has a leader", lambda: harness.leader() is not None)
    await admin.ask_any(FindCoordinatorRequest(coordinator_keys=["group"]))  # it creates the topic of the offsets
    await harness.until("a partition of it is loaded", lambda: any(map(_coordinates, harness.cluster.brokers)))
    leader = Channel(admin.world, harness.leader().host.name, BROKER_PORT, "asks")
    topic_id = next(each.topic_id for each in harness.leader().partitions() if each.topic == TOPIC)
    rows = [PartitionProduceData(index=0, records=batch([b"x"]))]
    topics = [TopicProduceData(topic_id=topic_id, partition_data=rows)]
    await leader.request(ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics))
    read = [FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 20)])]
    await leader.request(FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=read))


def _coordinates(node: SimNode) -> bool:
    server = node.server
    assert server is not None and server.broker is not None
    return bool(list(server.broker.groups.runtime.active_partitions()))


def _rows(shown: dict[str, tuple[Family, set[str]]]) -> Iterator[Metric]:
    for name, (family, roles) in shown.items():
        suffix = "_total" if family.kind == COUNTER else ""
        nodes = "all" if len(roles) > 1 else f"{roles.pop()}s"
        yield Metric(_type(name), f"{name}{suffix}", family.doc, family.kind, nodes)


def _type(name: str) -> str:
    """Kafka's type of the metric, which is the third part of its name in most: `kafka_server_raftmetrics`."""
    parts = name.split("_")
    if parts[0] != "kafka":
        return parts[0]
    return (
        "_".join(parts[:3])
        if parts[1] in ("server", "network", "log", "cluster", "controller", "coordinator")
        else "_".join(parts[:2])
    )
