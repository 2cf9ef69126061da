"""An active controller with an internal fault resigns: the next term, here or on another node, builds its state from the
log.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

from ottla.controller.decisions.heartbeats import Heartbeats
from ottla.controller.decisions.index import ClusterIndex
from ottla.controller.metadata.image import MetadataDelta
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.server.network.client import Channel
from tests.controller.images import same_content
from tests.controller.node import Node, create, running
from tests.controller.raft.nodes import quorum

#: The timeout is so long that no test here reaches it.
FETCH_TIMEOUT_MS = 60_000
BEFORE_THE_TIMEOUT_S = 25


async def test_a_leader_that_resigns_is_replaced_at_once_by_one_of_the_others(tmp_path: Path) -> None:
    async with quorum(3, tmp_path, fetch_timeout_ms=FETCH_TIMEOUT_MS, election_timeout_ms=FETCH_TIMEOUT_MS) as made:
        old = await made.elect()
        await made.commit_everywhere(b"before")
        began = time.monotonic()
        epoch = old.raft.state.epoch
        old.raft.resign(epoch)
        assert not old.raft.is_leader and old.raft.failure is None
        new = await made.elect()
        assert time.monotonic() - began < BEFORE_THE_TIMEOUT_S
        assert new is not old and new.raft.state.epoch == epoch + 1
        await made.commit_everywhere(b"after")
        assert all(node.state.records == [b"before", b"after"] for node in made.nodes)


async def test_a_leader_does_not_resign_a_later_epoch_than_the_one_that_is_named_and_a_follower_none(
    tmp_path: Path,
) -> None:
    async with quorum(3, tmp_path, fetch_timeout_ms=FETCH_TIMEOUT_MS) as made:
        leader = await made.elect()
        epoch = leader.raft.state.epoch
        leader.raft.resign(epoch - 1)
        for node in made.nodes:
            if node is not leader:
                node.raft.resign(epoch)
        await made.commit_everywhere(b"record")
        assert leader.raft.is_leader and leader.raft.state.epoch == epoch


async def test_the_only_controller_that_cannot_replay_what_it_has_appended_has_it_in_its_next_term(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = ClusterIndex.update

    def fail_once(self: ClusterIndex, delta: MetadataDelta) -> None:
        if delta.topics is not None:
            monkeypatch.setattr(ClusterIndex, "update", update)
            raise KeyError("by mistake")
        update(self, delta)

    async with running(tmp_path) as node:
        controller = node.node.controller
        epoch = controller.epoch
        monkeypatch.setattr(ClusterIndex, "update", fail_once)
        channel = Channel(node.real.world, "127.0.0.1", node.port)
        request = CreateTopicsRequest(topics=[CreatableTopic(name="orders", num_partitions=3, replication_factor=1)])
        assert (await channel.request(request)).topics[0].error_code == ErrorCode.NOT_CONTROLLER
        await node.wait(lambda: controller.is_active and controller.epoch > epoch)
        assert await create(channel, "orders", "invoices") == [ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.NONE]
        assert controller.epoch == epoch + 1
        assert len(controller.state.index.led_by(1)) == 6
        assert same_content(controller.image, node.metadata.loader.image)
        channel.close()


async def test_a_controller_that_fails_when_it_is_elected_is_active_in_its_next_term(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(tmp_path)
    await node.start()
    await node.stop()
    assume = Heartbeats.assume

    def fail_once(*_: object) -> None:
        monkeypatch.setattr(Heartbeats, "assume", assume)
        raise KeyError("by mistake")

    monkeypatch.setattr(Heartbeats, "assume", fail_once)
    async with running(tmp_path) as again:
        assert again.node.controller.is_active
        assert again.node.controller.epoch == node.node.controller.epoch + 2
        channel = Channel(again.real.world, "127.0.0.1", again.port)
        assert await create(channel, "orders") == [ErrorCode.NONE]
        channel.close()
    (line,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert line.getMessage() == "Node 1 was elected, and cannot be the active controller: it resigns"
