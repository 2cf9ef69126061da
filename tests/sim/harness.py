"""A simulated cluster with one topic, for tests that go step by step: the real nodes, in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from ottla.controller.metadata.topics import PartitionRegistration
from tests.sim.clients.admin import Admin
from tests.sim.cluster import BROKER_PORT, SimCluster, SimNode
from tests.sim.history import History
from tests.sim.invariants import Invariants

APART = {1: "broker", 2: "broker", 3: "broker", 4: "controller"}
TOGETHER = dict.fromkeys((1, 2, 3), "broker,controller")
TOPIC = "orders"


class SimClusterHarness:
    """A running cluster with one topic of one partition, and an administrator."""

    def __init__(self, roles: dict[int, str], settings: dict[str, str] | None = None) -> None:
        self.cluster = SimCluster(random.Random(1), roles, settings or {})
        self.invariants = Invariants(self.cluster, 2)
        loop = asyncio.get_running_loop()
        bootstrap = [(node.host.name, BROKER_PORT) for node in self.cluster.brokers]
        self.admin = Admin("admin", self.cluster.hub, random.Random(2), bootstrap, History(loop.time))

    async def begin(self) -> None:
        self.cluster.start()
        assert await self.cluster.all_serve(10)
        assert await self.admin.spawn(self.admin.create(TOPIC, 1, {}, 3), "creates")
        replicas = [self.cluster.by_number[number] for number in self.registration.replicas]
        await self.until("its replicas know", lambda: all(self._has_the_topic(node) for node in replicas))

    @staticmethod
    def _has_the_topic(node: SimNode) -> bool:
        return any(partition.topic == TOPIC for partition in node.partitions())

    @property
    def registration(self) -> PartitionRegistration:
        active = self.cluster.active_controller
        assert active is not None and active.server is not None
        topic = active.server.metadata.loader.image.topics.by_name(TOPIC)
        assert topic is not None
        return topic.partitions[0]

    async def until(self, what: str, is_so: Callable[[], bool], seconds: float = 30) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while not is_so():
            assert loop.time() < end, f"{what}: not within {seconds} s"
            await asyncio.sleep(0.05)

    def leader(self) -> SimNode:
        return self.cluster.by_number[self.registration.leader]
