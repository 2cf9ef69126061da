"""A broker's channels to the others: they are found on the inter-broker listener, whose name may be written in lower case."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.cluster.channels import BrokerChannels
from ottla.broker.configs import BrokerConfigs
from ottla.broker.metadata_cache import MetadataCache
from ottla.server.config.node_config import NodeConfig
from ottla.server.network.peer_security import PLAINTEXT

NODE = {
    "node.id": "1",
    "process.roles": "broker",
    "controller.quorum.voters": "9@localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "inside://127.0.0.1:9192",
    "listener.security.protocol.map": "inside:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "inside",
}


class Answering:
    """A channel that answers each request with its own address."""

    def __init__(self, world: Any, host: str, port: int, *rest: Any) -> None:
        self.address = f"{host}:{port}"

    async def request(self, request: object, timeout_ms: int) -> str:
        return self.address


def test_another_broker_is_asked_at_a_listener_whose_name_is_written_in_lower_case(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Registered listener names are in upper case, as Kafka makes them. Before the fix the broker counted as "not known to be
    alive".
    """
    monkeypatch.setattr("ottla.broker.cluster.channels.Channel", Answering)
    inside = SimpleNamespace(host="two.example", port=9192)
    broker = SimpleNamespace(fenced=False, epoch=5, endpoint={"INSIDE": inside}.get)
    metadata: Any = MetadataCache(1, "cluster")
    metadata.image = SimpleNamespace(cluster=SimpleNamespace(brokers={2: broker}))
    world: Any = None
    channels = BrokerChannels(world, BrokerConfigs(NodeConfig(NODE)), metadata, PLAINTEXT)
    assert asyncio.run(channels.request(2, object())) == "two.example:9192"
