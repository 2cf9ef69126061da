"""Histories of a registry: instances on one log and one group in memory, in virtual time, with clients and faults; and what must hold.

What must hold of each record and each answer is in registry_truth.py and registry_clients.py. When all is well again, each instance
takes a registration, shows what the log has, no more and no less, and so does an instance that has only read the compacted log.
Who had read what a cut took, or a topic that was created again, has said so.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from tests.histories import play_and_end
from tests.sim.loop import SimLoop, run
from tests.sim.registry_clients import SUBJECTS, Client
from tests.sim.registry_instance import Instance, Web, noted
from tests.sim.registry_model import NODES, TOPIC, WAY_S, RegistryCluster
from tests.sim.registry_truth import Fact, RegistryBroken, Truth, schema_of

HEALED_S_MAX = 90.0
#: Longer than a session, and longer than a write may wait.
PAUSE_S_MAX, LONG_AWAY_S = 20.0, 33.0


class Theme(NamedTuple):
    """The theme of a history. The number of its seed says which one it has: chance alone makes few faults in the order that shows a mistake.

    `faults` strike at any time, every `every_s` seconds on average, and those of `appends` in the middle of so many of the appends.
    """

    faults: str
    appends: str
    struck: float = 0.12
    every_s: float = 3.0
    clients: tuple[int, int] = (2, 5)
    #: The requests of all clients together, and the seconds between two requests of one client.
    operations: int = 100
    pause_s: float = 1.5
    #: How often clients register, look up, read by id and by subject, delete versions and subjects, and set a level and a mode.
    weights: tuple[int, ...] = (50, 10, 8, 8, 6, 6, 6, 6)


THEMES = (
    Theme(
        "kill pause pause lose silence stop move leaderless cut recreate compact compact rebalance move_coordinator slow",
        "kill pause move cut rebalance recreate silence lost",
    ),
    Theme("pause rebalance stop move_coordinator", "silence silence silence kill lost", 0.4, 10.0, (5, 5), 120, 1.0),
    Theme("cut cut move compact recreate leaderless slow", "cut cut recreate move", 0.2),
    Theme("slow slow slow move lose rebalance", "rebalance move lost", pause_s=1.0),
    Theme("rebalance move lose kill", "lost away", 0.15, 6.0, (8, 8), 160, 0.7),
    Theme("compact compact kill stop", "kill", 0.1, 4.0, (3, 3), pause_s=2.0, weights=(40, 4, 8, 4, 22, 22, 0, 0)),
)


class History:
    def __init__(self, seed: int) -> None:
        self.seed, self.rng = seed, random.Random(seed)
        self.cluster = RegistryCluster(self.rng)
        self.web = Web(self.rng)
        self.truth = Truth(lambda: asyncio.get_running_loop().time())
        self.cluster.on_append = self.truth.append
        self.instances: list[Instance] = []
        #: All that have ever run.
        self.all: list[Instance] = []
        #: For each cut and each new topic: the readers that had read the removed records.
        self.concerned: list[Instance] = []
        self.struck: Counter[str] = Counter()
        self.theme = THEMES[seed % len(THEMES)]
        count = self.rng.randint(*self.theme.clients)
        weights = self.theme.weights
        self.clients = [Client(self.web, self.truth, self.rng, self.running, weights) for _ in range(count)]
        self.is_healed = False

    async def play(self) -> None:
        if self.rng.random() < 0.5:
            self.cluster.create(TOPIC, 1)
        watching = asyncio.ensure_future(self.cluster.group.watch())
        for number in range(self.rng.randint(2, 3)):
            self.start(f"r{number}")
        theme, share = self.theme, self.theme.operations // len(self.clients)
        asking = [asyncio.ensure_future(each.run(share, theme.pause_s)) for each in self.clients]
        while not all(task.done() for task in asking):
            await asyncio.sleep(self.rng.expovariate(1 / theme.every_s))
            self.supervise()
            self.check_problems()
            self.strike(self.rng.choice(theme.faults.split()), self.one())
        for task in asking:
            task.result()
        self.heal()
        await self.wait(self.check_writes)
        self.start("fresh")
        await self.wait(self.check_shown)
        self.check_said()
        watching.cancel()

    # -- Instances ---------------------------------------------------------------------------------------------------------

    def start(self, host: str) -> None:
        made = Instance(host, self.cluster, self.web, self.rng)
        made.wire.on_produce = lambda is_done: self.on_produce(made, is_done)
        self.instances.append(made)
        self.all.append(made)

    def running(self) -> list[Instance]:
        return [each for each in self.instances if each.application is not None]

    def supervise(self) -> None:
        """Start again what has ended."""
        for each in [each for each in self.instances if each.is_over]:
            each.kill()
            self.instances.remove(each)
            self.start(each.host)

    # -- Faults ------------------------------------------------------------------------------------------------------------

    def strike(self, fault: str, instance: Instance) -> None:
        self.struck[fault] += 1
        getattr(self, fault)(instance)

    def later(self, seconds: float, action: Callable[..., object], *arguments: object) -> None:
        asyncio.get_running_loop().call_later(seconds, action, *arguments)

    def one(self) -> Instance:
        """Choose an instance, in half of the cases the leader."""
        leading = [each for each in self.instances if each.registry.is_leader]
        return self.rng.choice(leading if leading and self.rng.random() < 0.5 else self.instances)

    def kill(self, instance: Instance) -> None:
        instance.kill()

    def stop(self, instance: Instance) -> None:
        if not instance.is_over:
            instance.spawn(instance.stop())

    def pause(self, instance: Instance) -> None:
        instance.lane.paused = True
        self.later(self.rng.random() * PAUSE_S_MAX, sim_loop().resume, instance.lane)

    def lose(self, instance: Instance) -> None:
        wire = instance.wire
        wire.lost = self.rng.choice((0.05, 0.3))
        self.later(self.rng.random() * 8, setattr, wire, "lost", 0.0)

    def slow(self, instance: Instance) -> None:
        wire = instance.wire
        wire.way_s = self.rng.choice((0.1, 0.5))
        self.later(self.rng.random() * PAUSE_S_MAX, setattr, wire, "way_s", WAY_S)

    def silence(self, instance: Instance) -> None:
        """Let no request of an instance reach the cluster for a while; they arrive afterwards."""
        wire = instance.wire
        wire.open.clear()
        self.later(self.rng.random() * PAUSE_S_MAX, wire.open.set)

    def move(self, instance: Instance) -> None:
        self.cluster.move()

    def leaderless(self, instance: Instance) -> None:
        self.cluster.move(-1)
        self.later(self.rng.random() * 5, self.move, instance)

    def away(self, instance: Instance) -> None:
        self.cluster.move(-1)
        self.later(LONG_AWAY_S, self.move, instance)

    def cut(self, instance: Instance) -> None:
        """An unclean election: the last records are lost.

        Sometimes the log immediately becomes longer than before, as it may with a new leader.
        """
        if TOPIC not in self.cluster.topics:
            return
        log = self.cluster.schemas
        offset = self.rng.randint(max(log.start, log.cleaned, log.end - self.rng.choice((3, 12))), log.end)
        ends = {entry.end for entry in log.entries if entry.end <= offset} | {log.start}
        self.concern(max(ends))
        lost = log.end - max(ends)
        self.cluster.cut(offset)
        self.truth.cut(log.end)
        for _ in range(self.rng.choice((0, lost + 2))):
            ids = {context.removeprefix(":") or ".": number for context, number in self.truth.greatest.items()}
            self.cluster.write_noop(ids)

    def recreate(self, instance: Instance) -> None:
        """The topic is deleted and created again, sometimes after a while."""
        if TOPIC not in self.cluster.topics or self.rng.random() < 0.5:
            return
        self.concern(-1)
        self.cluster.delete(TOPIC)
        self.truth.recreate()
        if self.rng.random() < 0.5:
            self.come()
        else:
            self.later(self.rng.random() * 5, self.come)

    def come(self) -> None:
        if TOPIC not in self.cluster.topics:
            self.cluster.create(TOPIC, 1)

    def concern(self, end: int) -> None:
        topic_id = self.cluster.topics[TOPIC].id
        self.concerned += [
            each
            for each in self.instances
            if not each.is_over and each.log.place.topic_id == topic_id and each.log.place.offset > max(end, 0)
        ]

    def compact(self, instance: Instance) -> None:
        if TOPIC in self.cluster.topics:
            log = self.cluster.schemas
            log.compact(self.rng.choice([entry.end for entry in log.entries] or [log.start]))

    def rebalance(self, instance: Instance) -> None:
        self.cluster.group.rebalance()

    def move_coordinator(self, instance: Instance) -> None:
        self.cluster.coordinator = self.rng.choice(NODES)

    def on_produce(self, instance: Instance, is_done: bool) -> bool:
        """Strike in the middle of an append. Return whether the connection is lost, before or after the append takes effect."""
        if self.is_healed or self.rng.random() > self.theme.struck / 2:
            return False
        fault = self.rng.choice(self.theme.appends.split())
        if fault != "lost":
            self.strike(fault, instance)
        return fault == "lost"

    # -- The end -----------------------------------------------------------------------------------------------------------

    def heal(self) -> None:
        self.is_healed = True
        if self.cluster.leader < 0:
            self.cluster.move()
        self.come()
        for each in self.instances:
            each.wire.lost, each.wire.way_s = 0.0, WAY_S
            each.wire.open.set()
            sim_loop().resume(each.lane)

    async def wait(self, check: Callable[[], Awaitable[None]]) -> None:
        """Repeat a check, which may send requests to the instances, until it succeeds."""
        loop = asyncio.get_running_loop()
        until = loop.time() + HEALED_S_MAX
        while True:
            self.supervise()
            self.check_problems()
            try:
                await check()
                return
            except RegistryBroken:
                if loop.time() > until:
                    raise
            await asyncio.sleep(1)

    def check_problems(self) -> None:
        problems = self.truth.problems + [text for each in self.all for text in each.problems]
        if problems:
            raise RegistryBroken("; ".join(problems[:3]))

    async def check_writes(self) -> None:
        """Each instance takes a registration."""
        (client, *_) = self.clients
        for each in self.instances:
            code, made = await client.ask(each, "PUT", "/config", {"compatibility": "NONE"})
            if code != 200:
                raise RegistryBroken(f"{each.host} takes no writes: {code} {made}")
            text = json.dumps({"type": "record", "name": f"Last{each.host}", "fields": []}, separators=(",", ":"))
            code, made = await client.ask(each, "POST", f"/subjects/last-{each.host}/versions", {"schema": text})
            if code != 200:
                raise RegistryBroken(f"{each.host} takes no registration: {code} {made}")

    async def check_shown(self) -> None:
        """Each instance shows what the log has."""
        (client, *_) = self.clients
        wanted = self.truth.facts
        for each in self.instances:
            code, rows = await client.ask(each, "GET", "/schemas?deleted=true&subjectPrefix=:*:")
            if code != 200:
                raise RegistryBroken(f"{each.host} does not answer: {code}")
            shown = set()
            for row in rows:
                references = [(one["subject"], one["version"]) for one in row.get("references", ())]
                shown.add(Fact(row["subject"], row["version"], row["id"], schema_of(row["schema"], references)))
            if shown != wanted:
                text = f"{each.host} shows {sorted(shown - wanted)} more than the log, and not {sorted(wanted - shown)}"
                raise RegistryBroken(text)
            for subject in SUBJECTS:
                mode = each.registry.state.mode(subject)
                if mode != self.truth.mode(subject):
                    raise RegistryBroken(f"{each.host} shows the mode of {subject} as {mode}")

    def check_said(self) -> None:
        """Check that each reader of removed records that has run until the end has logged that it starts again."""
        for each in self.concerned:
            if each in self.instances and not any("again" in text for text in each.said):
                raise RegistryBroken(f"{each.host} has read what was lost, and has said {each.said}")

    def end(self) -> None:
        for each in self.all:
            each.lane.closed = each.lane.paused = False
        for task in asyncio.all_tasks():
            if task is not asyncio.current_task():
                task.cancel()


def sim_loop() -> SimLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    return loop


def play(seed: int) -> History:
    """Play the history of a seed.

    Raises: RegistryBroken: a check failed.

    Raises:
        RegistryBroken: something does not hold that must.
    """

    async def main() -> History:
        history = History(seed)
        with noted(history.all):
            await play_and_end(history)
        return history

    return run(main())
