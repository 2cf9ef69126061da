"""docs/dev/HOPS.md is true: each walk is made by a real request at simulated nodes, and its turns are recorded.

A walk's turn is the first turn of its node, after the one before, that calls the functions of its rows in their order.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any
from unittest import mock

import pytest

from ottla.broker.replication.partition import Partition
from ottla.controller.raft.leader import Leader
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.shared_structs import ClassicProtocol
from ottla.server.network.client import Channel
from tests.broker.records import batch
from tests.rules.sources import ROOT
from tests.sim import hops
from tests.sim.cluster import BROKER_PORT, SimNode
from tests.sim.harness import TOPIC, SimClusterHarness
from tests.sim.loop import SimLoop, run

PAGE = "docs/dev/HOPS.md"
#: There are two brokers, so each partition has one follower, and three controllers, so metadata is committed by a Fetch.
ROLES = {1: "broker", 2: "broker", 3: "controller", 4: "controller", 5: "controller"}
#: No NoOp record comes in between.
SETTINGS = {
    "default.replication.factor": "2",
    "offsets.topic.replication.factor": "2",
    "metadata.max.idle.interval.ms": "0",
    "min.insync.replicas": "1",
}
GROUP, ACKS_ALL = "g", -1
#: Followers have the appended records, and their next Fetch waits for half a second.
SETTLED_SECONDS = 0.05
#: In the middle between two Fetches that end without records.
PAUSE_SECONDS = 0.75
LOOKED_UP, RETURNS = "Looked up on the way", "More than one return"


class Undivided(random.Random):
    """Make a network that neither splits messages nor varies its delay."""

    def random(self) -> float:
        return 0.0


class Walks:
    """A running cluster whose codecs are compiled and whose logs have records: each step is the usual one."""

    def __init__(self) -> None:
        self.harness = SimClusterHarness(ROLES, SETTINGS)
        self.admin, self.cluster = self.harness.admin, self.harness.cluster
        #: The client sends its requests to this one.
        self.asked = self.cluster.brokers[0]

    async def begin(self) -> None:
        self.cluster.start()
        assert await self.cluster.all_serve(10)
        assert await self.admin.spawn(self.admin.create(TOPIC, 1, {}, 2), "creates")
        await self.harness.until("it is replicated", lambda: len(self.replicas()) == 2)
        self.cluster.hub.rng = Undivided()

    def replicas(self) -> list[Partition]:
        return [each for node in self.cluster.brokers for each in node.partitions() if each.topic == TOPIC]

    def voters_wait(self) -> bool:
        """The Fetches of all voters are delayed at the active controller."""
        active = self.node("controller")
        assert active.server is not None
        role = active.server.metadata.raft.state.role
        assert isinstance(role, Leader)
        waiting = {parked.fetch.replica.id for parked in role.parked} | {active.number}
        return waiting >= {node.number for node in self.cluster.nodes if node.is_controller}

    def node(self, role: str) -> SimNode:
        """The node that has this part in the walk."""
        asked, active = self.asked, self.cluster.active_controller
        assert active is not None
        found = {
            "leader": asked,
            "broker": asked,
            "follower": next(node for node in self.cluster.brokers if node is not asked),
            "controller": active,
            "voter": next(node for node in self.cluster.nodes if node.is_controller and node is not active),
        }
        return found[role]

    def client(self, node: SimNode, name: str) -> Channel:
        return Channel(self.admin.world, node.host.name, BROKER_PORT, name)

    def recorded(self) -> AbstractContextManager[list[hops.Turn]]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        return hops.recorded(loop, [node.host.lane for node in self.cluster.nodes])

    async def record(self, practice: list[Any], requests: list[Any]) -> list[hops.Turn]:
        """The turns of the second list: one client sends all its requests, one after the other."""
        channel = self.client(self.asked, "asks")
        for request in practice[:-1]:
            await channel.request(request)
            await asyncio.sleep(PAUSE_SECONDS)
        await channel.request(practice[-1])
        await asyncio.sleep(SETTLED_SECONDS)
        await self.harness.until("the voters wait", self.voters_wait)
        with self.recorded() as turns:
            for request in requests:
                await channel.request(request)
                await asyncio.sleep(SETTLED_SECONDS)
        return turns


def a_produce(walks: Walks, acks: int = ACKS_ALL) -> ProduceRequest:
    rows = [PartitionProduceData(index=0, records=batch([b"x"]))]
    topics = [TopicProduceData(topic_id=walks.replicas()[0].topic_id, partition_data=rows)]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics)


async def produce(walks: Walks, acks: int = ACKS_ALL) -> list[hops.Turn]:
    walks.asked = walks.harness.leader()
    request = a_produce(walks, acks)
    return await walks.record([request, request], [request, request])


async def first_produce(walks: Walks) -> list[hops.Turn]:
    await write(walks)
    return await walks.record([MetadataRequest(topics=[])], [a_produce(walks)])


async def follow(walks: Walks) -> list[hops.Turn]:
    """The producer does not wait, so the Fetch completes no request: it is sent with the first batch, and gets the second."""
    return await produce(walks, acks=1)


async def consume(walks: Walks) -> list[hops.Turn]:
    producer, consumer = await write(walks), walks.client(walks.asked, "reads")
    await consumer.request(MetadataRequest(topics=[]))
    log = walks.replicas()[0].log
    assert log is not None
    rows = [FetchPartition(partition=0, fetch_offset=log.high_watermark, partition_max_bytes=1 << 20)]
    topics = [FetchTopic(topic_id=walks.replicas()[0].topic_id, partitions=rows)]
    read = FetchRequest(max_wait_ms=5_000, min_bytes=1, max_bytes=1 << 20, topics=topics)
    with walks.recorded() as turns:
        reading = asyncio.get_running_loop().create_task(consumer.request(read))
        await asyncio.sleep(SETTLED_SECONDS)
        await producer.request(a_produce(walks))
        await reading
    return turns


async def fail_over(walks: Walks) -> list[hops.Turn]:
    """The client knows the follower, as each client with metadata knows more brokers than the leader."""
    await write(walks)
    client = walks.client(walks.node("follower"), "asks")
    where = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
    await client.request(where)
    await asyncio.sleep(PAUSE_SECONDS)
    await walks.harness.until("the voters wait", walks.voters_wait)
    for role in ("controller", "voter"):
        walks.node(role).host.disk_seconds_max = 0
    with walks.recorded() as turns:
        await walks.asked.crash(power=False)
        await client.request(where)
        await client.request(a_produce(walks))
    return turns


async def write(walks: Walks) -> Channel:
    """Write a record, so that the replicas have their files. Return its producer's connection to the leader."""
    walks.asked = walks.harness.leader()
    channel = walks.client(walks.asked, "writes")
    await channel.request(a_produce(walks))
    await asyncio.sleep(PAUSE_SECONDS)
    return channel


async def join_group(walks: Walks) -> list[hops.Turn]:
    walks.asked = walks.cluster.by_number[await walks.admin.coordinator(GROUP, 0)]
    supported = [ClassicProtocol(name="range", metadata=b"x")]
    requests = [
        JoinGroupRequest(
            group_id=group, group_instance_id="i", protocol_type="consumer", protocols=supported,
            session_timeout_ms=10_000, rebalance_timeout_ms=10_000,
        )
        for group in ("practice of one", "practice 2", "practice 3", GROUP)
    ]  # fmt: skip
    return await walks.record(requests[:-1], requests[-1:])


async def create_topics(walks: Walks) -> list[hops.Turn]:
    # The other voter's disk is slower, and so are its messages: a Fetch of this voter commits.
    for role in ("controller", "voter"):
        walks.node(role).host.disk_seconds_max = 0
    requests = [
        CreateTopicsRequest(
            topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=2)], timeout_ms=5_000
        )
        for name in ("practice", "another", "new")
    ]
    return await walks.record(requests[:-1], requests[-1:])


WALKS: dict[str, Callable[[Walks], Awaitable[list[hops.Turn]]]] = {
    "A first Produce": first_produce,
    "Produce": produce,
    "A follower's Fetch": follow,
    "A consumer's read": consume,
    "A leader's end": fail_over,
    "JoinGroup": join_group,
    "A forwarded CreateTopics": create_topics,
}


@cache
def page() -> str:
    return (ROOT / PAGE).read_text()


@cache
def looked_up() -> tuple[str, ...]:
    return tuple(re.findall(r"^\| `([^`]+)` \| [^|]+ \|$", page().partition(f"## {LOOKED_UP}")[2], flags=re.MULTILINE))


def is_looked_up(file: str) -> bool:
    return file.startswith(looked_up())


@cache
def returns() -> frozenset[tuple[str, int, str]]:
    """Walks, turns and files that are entered more than twice for a reason."""
    rows = re.findall(
        r"^\| ([^|]+) \| (\d+) \| `([^`]+)` \| [^|]+ \|$", page().partition(f"## {RETURNS}")[2], re.MULTILINE
    )
    return frozenset((walk, int(turn), file) for walk, turn, file in rows)


def matched(walks: Walks, rows: list[hops.Row], recorded: list[hops.Turn]) -> dict[int, hops.Turn]:
    """The walk's turns by their numbers."""
    found: dict[int, hops.Turn] = {}
    following = iter(recorded)
    for number in sorted({row.turn for row in rows}):
        of_turn = [row for row in rows if row.turn == number]
        lane, wrong = walks.node(of_turn[0].node).host.name, []
        for turn in following:
            if turn.lane == lane:
                missing = hops.missing(of_turn, turn.calls)
                if missing is None:
                    found[number] = turn
                    break
                wrong.append(of_turn.index(missing))
        else:
            furthest = of_turn[max(wrong, default=0)]
            pytest.fail(f"no turn calls {furthest.function} of {furthest.file} after the rows before it: {furthest}")
    return found


@pytest.mark.parametrize("title", WALKS)
def test_the_walk_is_as_the_page_says_and_goes_one_way(title: str) -> None:
    rows = hops.walks(page())[title]

    async def main() -> dict[int, hops.Turn]:
        walks = Walks()
        await walks.begin()
        recorded = await WALKS[title](walks)
        return matched(walks, rows, recorded)

    # The next append after a flush check asks for space, which is not part of the walk.
    with mock.patch("ottla.broker.scheduled_tasks.FLUSH_LOOK_MS_MAX", 3_600_000):
        turns = run(main())
    for number, turn in turns.items():
        tree = hops.visits(turn.calls, is_looked_up)
        often = {file for file, count in hops.counts(tree).items() if count > 2}
        assert often == {file for walk, n, file in returns() if (walk, n) == (title, number)}, f"turn {number}"
        unnamed = hops.passed_through(tree) - {row.file for row in rows}
        assert not unnamed, f"turn {number} leads through files that have no row"


def test_each_walk_and_each_reason_is_of_something() -> None:
    assert set(hops.walks(page())) == set(WALKS)
    assert {walk for walk, _, _ in returns()} <= set(WALKS)
    assert all((ROOT / file).exists() for file in looked_up())


def test_a_file_that_is_entered_again_after_others_is_counted_and_a_caller_that_gets_control_back_is_not() -> None:
    lines = [(0, "a", 1), (1, "b", 2), (1, "c", 3), (1, "b", 4), (2, "a", 5), (1, "c", 3), (1, "c", 6)]
    code = run.__code__
    calls = [hops.Call(depth, file, "f", (code, line)) for depth, file, line in lines]
    assert hops.counts(hops.visits(calls, lambda file: False)) == {"a": 2, "b": 2, "c": 2}
    assert hops.counts(hops.visits(calls, lambda file: file == "b")) == {"a": 1, "c": 1}
