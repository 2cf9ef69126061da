"""A controller of its own on a real disk and a real port: what is answered is still there after a stop and after a crash."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker.controller_channel import ControllerAddress, ControllerChannel
from broker.lifecycle import BrokerIdentity, BrokerLifecycle, BrokerState
from controller.control.config_schema import TableSchema
from controller.control.settings import ControlSettings
from controller.metadata.brokers import Endpoint
from controller.node import ControllerNode, MetadataNode
from controller.raft.config import RaftConfig, parse_voters
from controller.raft.voters import Endpoint as VoterEndpoint
from protocol.api import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from server.config.broker import BROKER_CONFIGS
from server.handlers.api_versions import ApiVersionsHandler
from server.network.client import Channel
from server.network.dispatch import Dispatcher
from server.network.frames import ReceiveBuffer
from server.network.listener import ConnectionLimits, Listener
from server.network.listener import Endpoint as ListenerEndpoint
from server.network.route import Route, RouteTable
from server.timer_wheel import TimerWheel
from server.world import RealWorld

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
DIRECTORY_ID = b"\x07" * 16


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Node:
    """A controller, and a broker that consists of its lifecycle alone."""

    def __init__(self, directory: Path) -> None:
        self.real = RealWorld(asyncio.get_running_loop())
        world = self.real.world
        self.port = free_port()
        config = RaftConfig(
            node_id=1,
            directory_id=DIRECTORY_ID,
            cluster_id=CLUSTER_ID,
            endpoints=(VoterEndpoint("CONTROLLER", "127.0.0.1", self.port),),
            static_voters=parse_voters(f"1@127.0.0.1:{self.port}", "CONTROLLER"),
        )
        self.metadata = MetadataNode(world, config, str(directory))
        defaults = {name: key.default for name, key in BROKER_CONFIGS.items() if not key.required}
        endpoint = Endpoint("CONTROLLER", "127.0.0.1", self.port, 0)
        settings = ControlSettings(node_id=1, cluster_id=CLUSTER_ID, metadata_max_idle_interval_ms=0)
        self.node = ControllerNode(world, self.metadata, settings, TableSchema(1, defaults), [endpoint])
        self.channel = ControllerChannel(world, 1, self._locate)
        self.metadata.leader_watchers.append(self.channel.leader_changed)
        identity = BrokerIdentity(1, CLUSTER_ID, [Endpoint("PLAINTEXT", "127.0.0.1", 9092, 0)], [DIRECTORY_ID])
        self.lifecycle = BrokerLifecycle(world, identity, self.channel, lambda: self.metadata.last_applied_offset)
        self.metadata.loader.add_publisher(self.lifecycle)
        api_versions = ApiVersionsHandler(self.metadata.features)
        routes = [*self.node.routes(), Route(ApiKey.API_VERSIONS, api_versions)]
        api_versions.set_routes(routes)
        dispatcher = Dispatcher(RouteTable(routes), world.clock, world.spawn)
        self.listener = Listener(
            world,
            ListenerEndpoint("CONTROLLER", "127.0.0.1", self.port),
            dispatcher,
            ConnectionLimits(),
            ReceiveBuffer(1 << 20),
            TimerWheel(world.clock),
        )

    def _locate(self) -> ControllerAddress | None:
        endpoint = self.metadata.raft.leader_endpoint
        return (
            None if endpoint is None else ControllerAddress(self.metadata.raft.leader_id, endpoint.host, endpoint.port)
        )

    async def start(self) -> None:
        await self.metadata.start()
        await self.listener.start()
        self.lifecycle.ready_to_unfence()
        self.lifecycle.start()
        async with asyncio.timeout(10):
            await self.lifecycle.unfenced

    async def stop(self) -> None:
        self.lifecycle.stop()
        self.channel.close()
        await self.node.stop()
        await self.metadata.stop()
        await self.listener.stop()
        await self.real.close()

    async def crash(self) -> None:
        """No word to anybody, nothing flushed by us that was not flushed already."""
        await self.real.close()
        self.listener.abort()
        await self.listener.stop()

    async def wait(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0.002)  # noqa: ASYNC110  the condition is the metadata's, which has no events


@asynccontextmanager
async def running(directory: Path) -> AsyncIterator[Node]:
    node = Node(directory)
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


async def test_a_fresh_directory_is_formatted_and_the_broker_let_in(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        image = node.metadata.loader.image
        assert image.features.metadata_version == 30
        assert dict(image.features.levels) == {
            "metadata.version": 30,
            "eligible.leader.replicas.version": 1,
            "group.version": 1,
            "share.version": 1,
            "streams.version": 1,
            "transaction.version": 2,
        }
        assert dict(image.configs.for_broker("")) == {"min.insync.replicas": "1"}
        assert not image.cluster.brokers[1].fenced
        assert node.lifecycle.state is BrokerState.RUNNING
        await node.wait(lambda: 1 in node.metadata.loader.image.cluster.controllers)


async def create(channel: Channel, *names: str) -> list[int]:
    topics = [CreatableTopic(name=name, num_partitions=3, replication_factor=1) for name in names]
    response = await channel.request(CreateTopicsRequest(topics=topics))
    return [topic.error_code for topic in response.topics]


@pytest.mark.parametrize("clean", [True, False], ids=["stop", "crash"])
async def test_a_created_topic_is_there_after(clean: bool, tmp_path: Path) -> None:
    node = Node(tmp_path)
    await node.start()
    channel = Channel(node.real.world, "127.0.0.1", node.port)
    assert await create(channel, "orders", "invoices") == [0, 0]
    topics = node.metadata.loader.image.topics
    assert {topic.name for topic in topics} == {"orders", "invoices"}, "published before it was answered"
    first_epoch = node.lifecycle.broker_epoch
    channel.close()
    await (node.stop() if clean else node.crash())

    async with running(tmp_path) as again:
        image = again.metadata.loader.image
        assert {topic.name for topic in image.topics} == {"orders", "invoices"}
        assert image.topics.by_name("orders") is not None
        partition = image.topics.by_name("orders").partitions[0]  # type: ignore[union-attr]
        # Nobody showed a clean-shutdown mark, so the broker was out of ISR and ELR, and came back as last known leader.
        assert (partition.leader, partition.isr, partition.elr, partition.leader_recovery_state) == (1, (1,), (), 1)
        assert again.lifecycle.broker_epoch > first_epoch
        channel = Channel(again.real.world, "127.0.0.1", again.port)
        assert await create(channel, "orders") == [ErrorCode.TOPIC_ALREADY_EXISTS]
        channel.close()


async def test_a_snapshot_stands_for_the_log_before_it(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.metadata._snapshots._bytes_max = 2_000
    await node.start()
    channel = Channel(node.real.world, "127.0.0.1", node.port)
    for number in range(20):
        assert await create(channel, f"topic-{number}") == [0]
    await node.wait(lambda: node.metadata.raft.latest_snapshot() is not None)
    before = node.metadata.loader.image
    channel.close()
    await node.stop()

    async with running(tmp_path) as again:
        assert set(again.metadata.loader.image.topics.names) == set(before.topics.names)
