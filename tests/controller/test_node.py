"""All that a controller has acknowledged is still there after a stop and after a crash."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ottla.broker.cluster.broker_state import BrokerState
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.server.network.client import Channel
from tests.controller.images import same_content
from tests.controller.node import SECONDS_MAX, Node, create, running
from tests.ports import free_ports


async def test_a_fresh_directory_is_formatted_and_the_broker_let_in(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        image = node.metadata.loader.image
        assert image.features.metadata_version == 33
        assert dict(image.features.levels) == {
            "metadata.version": 33,
            "eligible.leader.replicas.version": 1,
            "group.version": 1,
            "share.version": 2,
            "streams.version": 1,
            "transaction.version": 2,
        }
        assert dict(image.configs.for_broker("")) == {"min.insync.replicas": "1"}
        assert not image.cluster.brokers[1].fenced
        assert node.lifecycle.state is BrokerState.RUNNING
        await node.wait(lambda: 1 in node.metadata.loader.image.cluster.controllers)


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
        partition = image.topics.by_name("orders").partitions[0]
        # There was no clean-shutdown file, so the broker was out of ISR and ELR, and came back as the last known leader.
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
    await node.wait(lambda: node.metadata.raft.state.log.latest_snapshot is not None)
    before = node.metadata.loader.image
    channel.close()
    await node.stop()

    async with running(tmp_path) as again:
        assert set(again.metadata.loader.image.topics.names) == set(before.topics.names)


async def test_the_next_controller_goes_on_where_the_lost_one_stopped(tmp_path: Path) -> None:
    ports = dict(zip((1, 2, 3), free_ports(3), strict=True))
    nodes = {node_id: Node(tmp_path / str(node_id), node_id=node_id, ports=ports) for node_id in ports}
    async with asyncio.timeout(2 * SECONDS_MAX):
        await asyncio.gather(*(node.start() for node in nodes.values()))
        lost = nodes.pop(next(node.node_id for node in nodes.values() if node.node.controller.is_active))
        one, other = nodes.values()
        request = CreateTopicsRequest(topics=[CreatableTopic(name="before", num_partitions=1, replication_factor=3)])
        assert (await one.channel.request(request)).topics[0].error_code == 0
        await one.wait(lambda: len(one.metadata.loader.image.cluster.controllers) == 3)
        await lost.crash()

        request = CreateTopicsRequest(topics=[CreatableTopic(name="after", num_partitions=1, replication_factor=2)])
        assert (await one.channel.request(request)).topics[0].error_code == 0
        for node in (one, other):
            await node.wait(lambda node=node: set(node.metadata.loader.image.topics.names) == {"before", "after"})
            await node.wait(lambda node=node: node.metadata.loader.image.cluster.brokers[lost.node_id].fenced)
            brokers = node.metadata.loader.image.cluster.brokers
            assert [brokers[each.node_id].fenced for each in (one, other)] == [False, False]
            before = node.metadata.loader.image.topics.by_name("before")
            assert before is not None and lost.node_id not in before.partitions[0].isr
        active = one if one.node.controller.is_active else other
        assert same_content(active.node.controller.image, active.metadata.loader.image)
        assert same_content(one.metadata.loader.image, other.metadata.loader.image)
        for node in (one, other):
            await node.stop()
