"""The base of every simulated client: its host, its channels to the brokers, the leaders that it knows, and its history."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Sequence
from typing import Any

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.server.network.client import Channel
from ottla.server.network.wire import ChannelClosed
from tests.sim.history import History, TopicPartition
from tests.sim.network import SimHub
from tests.sim.world import SimHost

Address = tuple[str, int]
REQUEST_TIMEOUT_MS = 4_000
BACKOFF_SECONDS = 0.1


class Unreachable(Exception):
    """There was no response: it is unknown whether the request took effect."""


class Client:
    """The connections of one simulated client. `run` is its life; it ends soon after `stopping` is set."""

    def __init__(
        self, name: str, hub: SimHub, rng: random.Random, bootstrap: Sequence[Address], history: History
    ) -> None:
        self.name, self.rng, self.history = name, rng, history
        self.host = SimHost(name, hub, random.Random(rng.getrandbits(64)))
        self.world = self.host.boot()
        self.failed: list[BaseException] = []
        assert self.host.tasks is not None
        self.host.tasks.on_failure = self.failed.append
        self.bootstrap = list(bootstrap)
        self.addresses: dict[int, Address] = {}
        self.leaders: dict[TopicPartition, tuple[int, int]] = {}  # leader and its epoch
        self.topic_ids: dict[str, bytes] = {}
        self._channels: dict[Address, Channel] = {}
        self.stopping = False
        self.is_done = False

    def start(self) -> None:
        self.spawn(self._live(), "life")

    async def _live(self) -> None:
        await self.run()
        self.is_done = True

    async def run(self) -> None:
        raise NotImplementedError

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = self.host.lane.context.run(self.world.spawn, coroutine, f"{self.name} {name}")
        return task

    async def close(self) -> None:
        await self.host.crash(power=False)

    async def pause(self, seconds_mean: float) -> None:
        await asyncio.sleep(min(self.rng.expovariate(1 / seconds_mean), 5 * seconds_mean))

    # -- Requests ----------------------------------------------------------------------------------------------------

    async def ask(self, address: Address, request: Any, timeout_ms: int = REQUEST_TIMEOUT_MS) -> Any:
        """Raises Unreachable."""
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = Channel(self.world, *address, self.name)
        try:
            return await channel.request(request, timeout_ms=timeout_ms)
        except (ChannelClosed, KafkaError) as failure:
            raise Unreachable(str(failure)) from None

    async def ask_node(self, number: int, request: Any, timeout_ms: int = REQUEST_TIMEOUT_MS) -> Any:
        address = self.addresses.get(number)
        if address is None:
            raise Unreachable(f"broker {number} is not known")
        return await self.ask(address, request, timeout_ms)

    async def ask_any(self, request: Any, timeout_ms: int = REQUEST_TIMEOUT_MS) -> Any:
        return await self.ask(self.rng.choice(self.bootstrap), request, timeout_ms)

    async def refresh(self, topics: Sequence[str]) -> None:
        """Ask for the leaders. If no node answers, the known ones stay; the client never goes back to an older leader epoch."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in topics], allow_auto_topic_creation=False
        )
        try:
            response = await self.ask_any(request, 2_000)
        except Unreachable:
            return
        self.addresses.update({broker.node_id: (broker.host, broker.port) for broker in response.brokers})
        for topic in response.topics:
            if topic.error_code != ErrorCode.NONE:
                continue
            self.topic_ids[topic.name] = topic.topic_id
            for row in topic.partitions:
                key = (topic.name, row.partition_index)
                if row.leader_epoch >= self.leaders.get(key, (-1, -1))[1] and row.leader_id >= 0:
                    self.leaders[key] = (row.leader_id, row.leader_epoch)

    async def leader_of(self, topic: str, partition: int) -> int | None:
        known = self.leaders.get((topic, partition))
        if known is None:
            await self.refresh([topic])
            known = self.leaders.get((topic, partition))
        return None if known is None else known[0]

    async def coordinator(self, key: str, key_type: int) -> int:
        """Raises Unreachable while there is none."""
        response = await self.ask_any(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]))
        found = response.coordinators[0]
        if found.error_code != ErrorCode.NONE:
            raise Unreachable(ErrorCode(found.error_code).name)
        self.addresses[found.node_id] = (found.host, found.port)
        return int(found.node_id)
