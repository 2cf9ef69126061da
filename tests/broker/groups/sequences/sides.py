"""The two sides that answer: a broker at a port, in real time, and a node of Ottla in the simulator, in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.server.network.client import Channel
from ottla.server.network.wire import ChannelClosed, RequestTimeout
from ottla.server.world import RealWorld, World
from tests.broker.groups.sequences.consumer import ConsumerPlayer
from tests.broker.groups.sequences.player import TOPICS, NoAnswer, Player
from tests.broker.groups.sequences.requests import RequestsPlayer
from tests.broker.groups.sequences.share import SharePlayer
from tests.broker.groups.sequences.step import Sequence as Steps
from tests.broker.groups.sequences.step import actual, common
from tests.broker.groups.sequences.streams import StreamsPlayer
from tests.broker.records import batch
from tests.sim.cluster import BROKER_PORT, SimCluster
from tests.sim.world import SimHost

PLAYERS: dict[str, type[Player]] = {
    "consumer": ConsumerPlayer,
    "share": SharePlayer,
    "streams": StreamsPlayer,
    "requests": RequestsPlayer,
}
GROUP_RESOURCE, SET = 32, 0
PREFILLED = {"s": 4, "r": 2}
#: The number of records in each batch.
BATCH = 5
AT_ONCE = 100
ANSWER_MS_MAX = 10_000

#: The properties of both sides: time-outs that are short enough to wait for, and no pauses between assignments.
PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
    "auto.create.topics.enable": "false",
    "log.retention.ms": "-1",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.max.share.sessions": "10000",
    "group.streams.initial.rebalance.delay.ms": "0",
    **{
        f"group.{kind}.{name}": value
        for kind in ("consumer", "share", "streams")
        for name, value in {
            "assignment.interval.ms": "0",
            "min.session.timeout.ms": "1000",
            "min.heartbeat.interval.ms": "100",
        }.items()
    },
}

#: The property with whose values sequences with classic members are played.
POLICY = "group.consumer.migration.policy"
BIDIRECTIONAL = "bidirectional"
POLICIES = (BIDIRECTIONAL, "upgrade", "downgrade", "disabled")

#: Kafka's defaults, for properties of which the simulator's clusters have other values.
KAFKAS_DEFAULTS = {
    "group.streams.num.standby.replicas": "0",
    "group.share.record.lock.duration.ms": "30000",
    "group.share.delivery.count.limit": "5",
    "group.share.initialize.retry.interval.ms": "30000",
    "share.coordinator.snapshot.update.records.per.snapshot": "500",
}


class Broker:
    """A broker over one connection. All connections to it share the known topics."""

    def __init__(
        self,
        world: World,
        host: str,
        port: int,
        settle_seconds: float,
        known: Broker | None = None,
        client_id: str = "wire",
    ) -> None:
        self.settle_seconds = settle_seconds
        self.channel = Channel(world, host, port, client_id)
        self.sends_again = known is not None and known.sends_again
        self.topic_names: dict[bytes, str] = {} if known is None else known.topic_names
        self.ids: dict[str, bytes] = {} if known is None else known.ids
        self.again = lambda client_id="wire": Broker(world, host, port, settle_seconds, self, client_id)

    async def request(self, message: Any, version: int | None = None) -> Any:
        """Return the response. Raises NoAnswer if the connection is closed, or nothing comes in time."""
        try:
            return await self.channel.request(message, version, ANSWER_MS_MAX)
        except (RequestTimeout, ChannelClosed) as error:
            raise NoAnswer(type(error).__name__) from None

    def topic_id(self, name: str) -> bytes:
        return self.ids.get(name, b"\2" * 16)

    async def create_topics(self, wanted: Iterable[tuple[str, int]]) -> Any:
        new = [CreatableTopic(name=name, num_partitions=count, replication_factor=1) for name, count in wanted]
        answer = await self.request(CreateTopicsRequest(topics=new, timeout_ms=60_000))
        for topic in answer.topics:
            if not topic.error_code:
                self._learn(topic)
        return answer

    def _learn(self, topic: Any) -> None:
        self.ids[topic.name], self.topic_names[topic.topic_id] = topic.topic_id, common(topic.name)

    async def create_topic(self, name: str, partitions: int) -> str:
        answer = await self.create_topics([(name, partitions)])
        return ErrorCode(answer.topics[0].error_code).name

    async def grow_topic(self, name: str, partitions: int) -> str:
        topics = [CreatePartitionsTopic(name=name, count=partitions, assignments=None)]
        answer = await self.request(CreatePartitionsRequest(topics=topics, timeout_ms=10_000))
        return ErrorCode(answer.results[0].error_code).name

    async def delete_topic(self, name: str) -> str:
        topics = [DeleteTopicState(name=name)]
        answer = await self.request(DeleteTopicsRequest(topics=topics, topic_names=[name], timeout_ms=10_000))
        return ErrorCode(answer.responses[0].error_code).name

    async def produce(self, name: str, partition: int, batches: int) -> str:
        error = ErrorCode.NONE
        for _ in range(batches):
            row = PartitionProduceData(partition, batch([b"x"] * BATCH))
            topic = TopicProduceData(name=name, partition_data=[row])
            answer = await self.request(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic]), 9)
            error = ErrorCode(answer.responses[0].partition_responses[0].error_code)
        return error.name

    async def _until_produced(self, name: str, partition: int) -> None:
        """Produce until it succeeds: a partition's leader may learn of the partition after Metadata has named it."""
        while True:
            if await self.produce(name, partition, 1) == "NONE":
                return
            await asyncio.sleep(0.1)

    async def prepare(self, sequences: Sequence[tuple[int, Steps]]) -> None:
        """Create the coordinators' topics, all other topics and configurations, and the records that share groups read."""
        await self._coordinators()
        mine = [(str(number), step) for number, step in sequences if step.has_own_topics]
        wanted = [(name, "all") for name in TOPICS]
        wanted += [(name, owner) for owner, sequence in mine for name in TOPICS if _uses(sequence, name)]
        new: set[str] = set()
        for first in range(0, len(wanted), AT_ONCE):
            some = wanted[first : first + AT_ONCE]
            answer = await self.create_topics((actual(name, owner), TOPICS[name]) for name, owner in some)
            new |= {topic.name for topic in answer.topics if not topic.error_code}
        await self._leaders([actual(name, owner) for name, owner in wanted])
        for name, owner in wanted:
            for partition in range(TOPICS[name] if actual(name, owner) in new else 0):
                for _ in range(PREFILLED.get(name, 0)):
                    await self._until_produced(actual(name, owner), partition)
        resources = [
            AlterConfigsResource(
                GROUP_RESOURCE,
                actual("g", str(number)),
                [AlterableConfig(name, SET, value) for name, value in sequence.configs.items()],
            )
            for number, sequence in sequences
            if sequence.configs
        ]
        for first in range(0, len(resources), AT_ONCE):
            some_resources = resources[first : first + AT_ONCE]
            answer = await self.request(IncrementalAlterConfigsRequest(resources=some_resources))
            assert not any(each.error_code for each in answer.responses), answer
        await asyncio.sleep(2 * self.settle_seconds)

    async def _coordinators(self) -> None:
        for key_type, key in ((0, "g"), (1, "x"), (2, "g:AAAAAAAAAAAAAAAAAAAAAQ:0")):
            while True:
                answer = await self.request(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 6)
                if not answer.coordinators[0].error_code:
                    break
                await asyncio.sleep(0.1)
        await asyncio.sleep(4 * self.settle_seconds)

    async def _leaders(self, names: list[str]) -> None:
        while True:
            topics = [MetadataRequestTopic(name=name) for name in names]
            answer = await self.request(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 12)
            rows = [row for topic in answer.topics for row in topic.partitions]
            if not any(row.error_code for row in [*answer.topics, *rows]):
                for topic in answer.topics:
                    self._learn(topic)
                return
            await asyncio.sleep(0.1)


def _uses(sequence: Steps, name: str) -> bool:
    return sequence.kind == "requests" or (name in "sr") == (sequence.kind == "share")


async def played(side: Broker, sequences: Sequence[tuple[int, Steps]], at_once: int) -> list[list[str]]:
    """Return the answers to each sequence. `at_once` sequences run side by side, each over its own connection."""
    await side.prepare(sequences)
    gate = asyncio.Semaphore(at_once)

    async def one(number: int, sequence: Steps) -> list[str]:
        async with gate:
            broker = side.again()
            try:
                return await PLAYERS[sequence.kind](broker, sequence, number).play()
            finally:
                broker.channel.close()

    return await asyncio.gather(*(one(number, sequence) for number, sequence in sequences))


async def of_broker(port: int, sequences: Sequence[tuple[int, Steps]], at_once: int = 100) -> list[list[str]]:
    world = RealWorld(asyncio.get_running_loop())
    side = Broker(world.world, "127.0.0.1", port, settle_seconds=0.5)
    try:
        return await played(side, sequences, at_once)
    finally:
        side.channel.close()
        await world.close()


async def of_simulation(
    sequences: Sequence[tuple[int, Steps]], properties: Mapping[str, str] = PROPERTIES
) -> list[list[str]]:
    """Return the answers of Ottla. It is run by `tests.sim.loop.run`."""
    small = dict.fromkeys(("default.replication.factor", "min.insync.replicas"), "1")
    internal = {f"{topic}.replication.factor": "1" for topic in ("offsets.topic", "transaction.state.log")}
    internal["share.coordinator.state.topic.replication.factor"] = "1"
    internal["share.coordinator.state.topic.min.isr"] = internal["transaction.state.log.min.isr"] = "1"
    long = {f"group.{kind}.session.timeout.ms": "45000" for kind in ("consumer", "share", "streams")}
    settings = {**small, **internal, **long, **KAFKAS_DEFAULTS, **properties}
    cluster = SimCluster(random.Random(1), {1: "broker,controller"}, settings)
    cluster.start()
    assert await cluster.all_serve(20)
    client = SimHost("client", cluster.hub, random.Random(2)).boot()
    side = Broker(client, "n1", BROKER_PORT, settle_seconds=0.5)
    side.sends_again = True
    return await played(side, sequences, at_once=16)
