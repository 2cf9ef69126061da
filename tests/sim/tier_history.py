"""Simulated clusters whose old segments lie in a store (KIP-405), with the faults of nodes, links and disks, and those of the store.

It is the simulation of `simulation.py`, its clients, faults and checks, with topics that keep little on the brokers' disks. Each read of a
consumer, at any time and at the end from the beginning, is held against what was acknowledged and what others have read. The administrator
moves replicas: most of those begin behind what the store has, and some of them lead in the end. No object is left that no record names.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from functools import partial

from ottla.broker.tiers.objects import OWNER
from ottla.protocol.primitives import uuid_to_str
from tests.sim.clients.connection import Client
from tests.sim.faults import Faults
from tests.sim.history import History
from tests.sim.plan import Plan, choose
from tests.sim.simulation import Simulation, played
from tests.sim.tier_store import ClusterStore, StoreWorkers
from tests.sim.world import SimHost, SimWorkers

#: Of virtual time.
SECONDS = 60.0
#: Seeds that have no scene (`scene_of`).
SEED_STEP = 40
TIERS = {
    "remote.log.storage.system.enable": "true",
    "ottla.tier.location": "simulated",
    "ottla.tier.call.timeout.ms": "3000",
    "ottla.tier.orphan.age.ms": "4000",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
    "rlmm.config.remote.log.metadata.topic.replication.factor": "3",
    "remote.log.manager.task.interval.ms": "700",
    "log.retention.check.interval.ms": "600",
}
TOPIC = {
    "remote.storage.enable": "true",
    "local.retention.ms": "1",
    "retention.ms": "-1",
    "internal.segment.bytes": "1500",
}
#: How long the store stays as it is.
STORE_SECONDS = (1.0, 8.0)


class TierSimulation(Simulation):
    """One run of a seed."""

    topic_configs = TOPIC
    #: Share groups do not read from the store (docs/TIERS.md).
    has_new_groups = False

    def __init__(self, seed: int, seconds: float, *, verbose: bool = False) -> None:
        super().__init__(SEED_STEP * seed, seconds, verbose=verbose)
        self.chance = random.Random(f"tiers {seed}")
        self.store = ClusterStore(random.Random(f"store {seed}"))

    def _choose(self) -> Plan:
        plan = choose(self.rng, self.seed)
        settings = plan.settings | TIERS
        settings["follower.fetch.last.tiered.offset.enable"] = self.chance.choice(("true", "false"))
        return replace(plan, settings=settings)

    async def _main(self) -> None:
        with self.store.opened(lambda number: self.cluster.by_number[number].host):
            await super()._main()

    def _clients(self) -> list[Client]:
        for node in self.cluster.nodes:
            node.host.apart = partial(self._workers, node.host)
        return super()._clients()

    def _workers(self, host: SimHost, name: str) -> SimWorkers | None:
        return StoreWorkers(self.store, host) if name.startswith("tier") else None

    async def _strike(self, faults: Faults, seconds: float, pause_seconds: float) -> None:
        changing = asyncio.ensure_future(self._change_store())
        try:
            await super()._strike(faults, seconds, pause_seconds)
        finally:
            changing.cancel()
            self.store.heal()

    async def _quiet(self) -> None:
        await self._until("each object of the store is named by a record", lambda: not self._unnamed())
        await super()._quiet()

    def _unnamed(self) -> set[str]:
        """Return the objects of segments that no broker knows from the records of `__remote_log_metadata`."""
        known: set[str] = set()
        for node in self.cluster.brokers:
            if node.server is not None and node.server.broker is not None and node.server.broker.tiers is not None:
                for followed in node.server.broker.tiers.driver.topic._followed.values():
                    known |= {uuid_to_str(each) for segments in followed.segments.values() for each in segments.by_id}
        return {name for name in self.store.objects if name != OWNER and not any(each in name for each in known)}

    async def _change_store(self) -> None:
        await change_store(self.store, self.chance, self.history)


async def change_store(store: ClusterStore, chance: random.Random, history: History) -> None:
    """Make it slow, failing or without answers now and then."""
    while True:
        store.heal()
        match chance.choice(("good", "good", "slow", "fails", "fails", "hangs")):
            case "slow":
                store.is_slow = True
            case "fails":
                store.failing = chance.choice((0.05, 0.3, 1.0))
            case "hangs":
                store.hangs = True
        history.note(f"STORE slow {store.is_slow} failing {store.failing} hangs {store.hangs}")
        await asyncio.sleep(chance.uniform(*STORE_SECONDS))


class TiersBroken(AssertionError):
    """An invariant does not hold; the text names it."""


def play(seed: int) -> TierSimulation:
    return played(TierSimulation(seed, SECONDS), TiersBroken)
