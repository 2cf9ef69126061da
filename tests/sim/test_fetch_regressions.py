"""Fetches at real brokers in virtual time: sessions that are closed, clients that disconnect, and topics that are created
later.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from ottla.broker.metrics.replicas import broker_metrics
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.server.network.client import Channel
from tests.broker.records import batch
from tests.sim.clients.admin import Admin
from tests.sim.cluster import BROKER_PORT, SimCluster, SimNode
from tests.sim.harness import APART, SimClusterHarness
from tests.sim.history import History
from tests.sim.loop import run

ONE = {1: "broker,controller"}
TOPIC = "orders"
BY_NAME = 12
#: Much longer than any wait for a wake-up, in virtual time.
FOREVER_MS = 20_000
READ, DENY, ALLOW, LITERAL = 3, 2, 3, 3


class OneNode:
    """A node with a topic of one partition, and clients whose requests may wait."""

    def __init__(self) -> None:
        settings = {"default.replication.factor": "1", "min.insync.replicas": "1"}
        self.cluster = SimCluster(random.Random(1), ONE, settings)
        (self.node,) = self.cluster.nodes
        loop = asyncio.get_running_loop()
        where = [(self.node.host.name, BROKER_PORT)]
        self.admin = Admin("admin", self.cluster.hub, random.Random(2), where, History(loop.time))

    async def begin(self) -> None:
        self.cluster.start()
        assert await self.cluster.all_serve(10)
        assert await self.admin.spawn(self.admin.create(TOPIC, 1, {}, 1), "creates")
        (self.partition,) = (p for p in self.node.partitions() if p.topic == TOPIC)

    def channel(self) -> Channel:
        return Channel(self.admin.world, self.node.host.name, BROKER_PORT, "asks")

    def append(self) -> None:
        self.partition.append(batch([b"x"]), 1, self.node.host.clock.wall_ms())

    def in_its_turn(self, *calls: Any) -> None:
        """All of them in one turn of the node's loop."""
        asyncio.get_running_loop().call_soon(lambda: [call() for call in calls], context=self.node.host.lane.context)


def fetch(**options: Any) -> FetchRequest:
    wanted = FetchTopic(topic=TOPIC, partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 20)])
    return FetchRequest(
        **{"session_epoch": -1, "min_bytes": 1, "max_wait_ms": FOREVER_MS, "topics": [wanted]} | options
    )


def batches(answer: Any) -> int:
    return sum(bool(p.records) for topic in answer.responses for p in topic.partitions)


def test_a_session_that_is_closed_in_the_turn_of_an_append_costs_no_other_fetch_its_wake_up() -> None:
    """A client that has reconnected closes the session of its old connection, on which a fetch still waits."""

    async def main() -> None:
        one = OneNode()
        await one.begin()
        owner, others = one.channel(), [one.channel() for _ in range(2)]
        opened = await owner.request(fetch(session_epoch=0, max_wait_ms=0), version=BY_NAME)
        held = fetch(session_id=opened.session_id, session_epoch=1, topics=[])
        waiting = [asyncio.ensure_future(owner.request(held, version=BY_NAME))]
        await asyncio.sleep(1)
        waiting += [asyncio.ensure_future(other.request(fetch(), version=BY_NAME)) for other in others]
        await asyncio.sleep(1)
        assert len(one.partition.watchers.consumers) == 3
        sessions = one.node.server.broker.components.fetch_sessions
        one.in_its_turn(one.append, lambda: sessions.close(opened.session_id))
        began = asyncio.get_running_loop().time()
        answers = await asyncio.gather(*waiting)
        assert asyncio.get_running_loop().time() - began < 1
        assert [batches(answer) for answer in answers] == [1, 1, 1]
        assert not one.partition.watchers.consumers

    run(main())


def test_a_session_that_is_closed_leaves_no_watch_behind() -> None:
    async def main() -> None:
        one = OneNode()
        await one.begin()
        channel = one.channel()
        opened = await channel.request(fetch(session_epoch=0, max_wait_ms=0), version=BY_NAME)
        assert len(one.partition.watchers.consumers) == 1
        await channel.request(fetch(session_id=opened.session_id, max_wait_ms=0), version=BY_NAME)
        assert not one.partition.watchers.consumers

    run(main())


@pytest.mark.parametrize("has_session", [False, True])
def test_a_client_that_goes_while_it_waits_leaves_no_watch_behind_but_those_of_its_session(has_session: bool) -> None:
    async def main() -> None:
        one = OneNode()
        await one.begin()
        channel = one.channel()
        request = fetch()
        if has_session:
            opened = await channel.request(fetch(session_epoch=0, max_wait_ms=0), version=BY_NAME)
            request = fetch(session_id=opened.session_id, session_epoch=1, topics=[])
        waiting = asyncio.ensure_future(channel.request(request, version=BY_NAME))
        await asyncio.sleep(1)
        assert len(one.partition.watchers.consumers) == 1
        channel.close()
        await asyncio.wait([waiting])
        await asyncio.sleep(1)
        assert len(one.partition.watchers.consumers) == int(has_session)

    run(main())


def test_a_fetch_whose_wait_ends_in_a_bug_of_the_broker_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        one = OneNode()
        await one.begin()
        waiting = asyncio.ensure_future(one.channel().request(fetch(max_wait_ms=2_000), version=BY_NAME))
        await asyncio.sleep(1)

        def broken(*args: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr("ottla.broker.fetch.reader.SessionReader.read", broken)
        answer = await waiting
        assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR

    run(main())


async def deny_reading(harness: SimClusterHarness, topic: str) -> None:
    """Deny the reading of a topic; all other operations stay allowed."""
    rows = [
        AclCreation(
            resource_type=2, resource_name=topic, resource_pattern_type=LITERAL, principal="User:ANONYMOUS", host="*",
            operation=operation, permission_type=permission,
        )
        for operation, permission in ((READ, DENY), (8, ALLOW))
    ]  # fmt: skip
    answer = await harness.admin.ask_any(CreateAclsRequest(creations=rows))
    assert [row.error_code for row in answer.results] == [0, 0]


def test_a_session_that_named_a_topic_id_before_the_broker_knew_it_may_not_read_it_unasked() -> None:
    """The authorizer checks names: an id that became known in the meantime has a name now."""

    async def main() -> None:
        authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        settings = {"authorizer.class.name": authorizer, "allow.everyone.if.no.acl.found": "true"}
        settings |= {"broker.session.timeout.ms": "60000"}
        harness = SimClusterHarness(APART, settings)
        await harness.begin()
        leader, late = harness.leader(), next(n for n in harness.cluster.brokers if n is not harness.leader())
        await deny_reading(harness, "hidden")
        await asyncio.sleep(2)
        controller = next(node for node in harness.cluster.nodes if not node.is_broker)
        harness.cluster.hub.partition([late.host.name], [controller.host.name])
        channel = Channel(harness.admin.world, leader.host.name, BROKER_PORT, "creates")
        topic = CreatableTopic(name="hidden", num_partitions=1, replication_factor=3)
        created = await channel.request(CreateTopicsRequest(topics=[topic], timeout_ms=5_000))
        assert created.topics[0].error_code == 0
        answers = await codes_before_and_after(harness, late, created.topics[0].topic_id)
        assert answers == [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED]

    run(main())


def test_the_time_of_delayed_fetches_is_measured_and_others_are_not_counted() -> None:
    """Kafka's RemoteTimeMs, without a cost for a fetch that is answered at once."""

    async def main() -> None:
        one = OneNode()
        await one.begin()
        parts, channel = one.node.server.broker.components, one.channel()
        await channel.request(fetch(max_wait_ms=300), version=BY_NAME)
        waiting = asyncio.ensure_future(channel.request(fetch(), version=BY_NAME))
        await asyncio.sleep(0.7)
        one.in_its_turn(one.append)
        assert batches(await waiting) == 1
        assert batches(await channel.request(fetch(), version=BY_NAME)) == 1, "answered at once"
        name = "kafka_network_requestmetrics_remotetimems"
        times = {family.name: family.samples for family in broker_metrics(parts) if family.name.startswith(name)}
        for request in ("Fetch", "FetchConsumer"):
            (count,) = (s.value for s in times[f"{name}_count"] if s.labels["request"] == request)
            (waited_ms,) = (s.value for s in times[f"{name}_sum"] if s.labels["request"] == request)
            (median_ms,) = (s.value for s in times[name] if s.labels == {"request": request, "quantile": "0.50"})
            assert count == 2
            assert 980 < waited_ms < 1_020
            assert 250 < median_ms < 550, "in powers of two"
        assert not [s for s in times[f"{name}_count"] if s.labels["request"] == "FetchFollower"]

    run(main())


async def codes_before_and_after(harness: SimClusterHarness, late: SimNode, topic_id: bytes) -> list[int]:
    """Return the codes in a session's responses while the broker does not know the topic, and after it does."""
    asks = Channel(harness.admin.world, late.host.name, BROKER_PORT, "asks")
    wanted = FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 20)])
    opened = await asks.request(FetchRequest(max_wait_ms=0, min_bytes=1, session_epoch=0, topics=[wanted]))
    codes = [opened.responses[0].partitions[0].error_code]
    harness.cluster.hub.heal()
    await harness.until("it knows the topic", lambda: any(p.topic == "hidden" for p in late.partitions()))
    again = await asks.request(FetchRequest(max_wait_ms=0, min_bytes=1, session_id=opened.session_id, session_epoch=1))
    return [*codes, again.responses[0].partitions[0].error_code]


@pytest.mark.parametrize(("replication_factor", "waits"), [(1, False), (3, True)])
def test_metadata_waits_for_a_loss_only_where_it_names_a_leader_that_is_followed(
    replication_factor: int, waits: bool
) -> None:
    """An old client may know of a lost leader first, but not this broker if it does not follow that leader."""

    async def main() -> None:
        harness = SimClusterHarness(APART)
        await harness.begin()
        admin = harness.admin
        assert await admin.spawn(admin.create("asked", 1, {}, replication_factor), "creates")
        await asyncio.sleep(1)
        topic = next(p for node in harness.cluster.brokers for p in node.partitions() if p.topic == "asked")
        other = next(node for node in harness.cluster.brokers if node.number != topic.leader_id)
        held = other.server.broker.components.delayed_metadata
        settled: list[object] = []
        settle = held.settle
        held.settle = lambda *given: settled.append(given) or settle(*given)
        channel = Channel(admin.world, other.host.name, BROKER_PORT, "asks")
        request = MetadataRequest(topics=[MetadataRequestTopic(name="asked")])
        await channel.request(request)
        assert not settled, "a client that is starting does not wait"
        await asyncio.sleep(1)
        await channel.request(request)
        assert bool(settled) is waits

    run(main())
