"""Histories of a mirror: real workers between two clusters in memory, in virtual time, with faults; and what must hold at the end.

Each value that a source's partition has at the end is in the target once, in order, unless it came before a start at the ends. Of a
deleted topic the target has a beginning of it, in order and once; if not all, that was said. What retention or a cut has taken may be
missing, and was said. What must hold of groups' offsets is in mirror_groups.py.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any, cast

from ottla.client.cluster import NoConnection
from ottla.mirror.names import Policy, Selection
from ottla.mirror.options import Clusters, MirrorOptions
from ottla.mirror.shares import LANES
from ottla.mirror.worker import Worker
from tests.histories import play_and_end
from tests.sim.loop import run
from tests.sim.mirror_client import ModelClient, Process
from tests.sim.mirror_groups import Groups
from tests.sim.mirror_model import Log, MirrorBroken, ModelCluster

FAULTS_S, HEALED_S_MAX = 25.0, 60.0
#: Transactions of a lane in a second: one each 100 ms, plus those that delays move into the second.
COMMITS_MAX = 12
#: The time after which a deleted topic exists again.
COME_S_MAX = 5.0
TOPICS = ("a", "b", "c")


class Group:
    """The lanes of each worker: its membership, without the group's protocol."""

    def __init__(self) -> None:
        self._never = asyncio.Event()

    async def run(self) -> None:
        await self._never.wait()

    async def confirm(self) -> None:
        await asyncio.sleep(0.5)

    async def leave(self) -> None:
        return


class Member:
    def __init__(self, history: History) -> None:
        self.process = Process(history.rng)
        clients = [ModelClient(side, self.process) for side in (*[history.source] * 2, *[history.target] * 3)]
        self.worker = Worker(Clusters(*clients), history.options, history.said.append)
        self.worker._membership = cast(Any, Group())
        self.task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        # A mirror that cannot reach its clusters at its start ends; its supervisor starts it again.
        while True:
            with suppress(NoConnection, TimeoutError):
                await self.worker.start()
                break
            await asyncio.sleep(1)
        await self.worker.run()


class History:
    def __init__(self, seed: int) -> None:
        self.seed, self.rng = seed, random.Random(seed)
        self.source, self.target = ModelCluster("west", self.rng), ModelCluster("east", self.rng)
        self.said: list[str] = []
        self.members: list[Member] = []
        #: Processes that were killed are kept until the end (`Process.never`).
        self.killed: list[Member] = []
        self.values = count()
        #: All records that were written, by topic id and partition, in order, and those of them that may be missing in the
        #: target.
        self.written: dict[tuple[bytes, int], list[bytes]] = {}
        self.excused: set[bytes] = set()
        self.options = MirrorOptions(
            Policy("west", "east"),
            Selection((".*",), (r".*\.internal",)),
            from_latest=self.rng.random() < 0.4,
            refresh_s=1.0,
            copy_settings=False,
            copy_acls=False,
            offset_syncs=self.rng.choice(("source", "target")),
            checkpoint_s=1.0,
            set_group_offsets=True,
            heartbeats=False,
        )
        self.groups = Groups(self.source, self.target, self.rng)

    async def play(self) -> None:
        for name in (*TOPICS, "secret"):
            self.source.create(name, self.rng.randint(1, 3))
        self.source.forbidden = {"secret"}
        self.write("secret")
        for _ in range(5):
            self.write()
        if self.options.from_latest:
            self.excused |= {value for row in self.written.values() for value in row}
        for _ in range(self.rng.randint(1, 3)):
            self.start()
        await self.first_positions()
        loop = asyncio.get_running_loop()
        until = loop.time() + FAULTS_S
        while loop.time() < until:
            await asyncio.sleep(self.rng.expovariate(3.0))
            self.step()
        self.heal()
        await asyncio.sleep(COME_S_MAX)
        await self.wait(self.check)
        for name in self.mirrored():
            for index in range(len(self.source.topics[name].logs)):
                self.source.write(name, index, [b"%d" % next(self.values)])
        self.groups.read_all(self.mirrored())
        await self.wait(lambda: self.groups.check_ends(self.mirrored()))
        self.groups.check_all()
        self.check_rate()
        self.check_said()

    async def first_positions(self) -> None:
        """A start at the ends takes a while: records written before all lanes have begun may be mirrored or not."""
        if not self.options.from_latest:
            return
        # Workers that start together may find no positions topic for a while, and wait longer each time.
        for _ in range(300):
            lanes = [lane for member in self.members for lane in member.worker.lanes.values()]
            if len(lanes) == LANES and all(lane.is_running for lane in lanes):
                return
            await asyncio.sleep(0.1)
        raise MirrorBroken("not all lanes have begun at their ends within 30 s")

    # -- What happens ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        member = Member(self)
        member.task = asyncio.ensure_future(member.run())
        self.members.append(member)
        self.share()

    def share(self) -> None:
        """Give each lane to one of the workers; those that have ended or are paused get none."""
        lanes: list[set[int]] = [set() for _ in self.members]
        for lane in range(LANES):
            self.rng.choice(lanes).add(lane)
        for member, numbers in zip(self.members, lanes, strict=True):
            member.worker._take_lanes(numbers)

    def step(self) -> None:
        action = self.rng.choice(
            [self.write] * 10
            + [self.kill, self.pause, self.share, self.lose, self.recreate, self.recreate, self.grow, self.cut]
            + [self.retain, self.lead, self.gone, self.target_again]
            + [self.groups_read] * 4
            + [self.refuse]
        )
        action()

    def mirrored(self) -> list[str]:
        """The source's topics that can be mirrored."""
        return sorted(name for name in self.source.topics.keys() - {"secret"} if not name.endswith(".internal"))

    def topic(self) -> str | None:
        names = self.mirrored()
        return self.rng.choice(names) if names else None

    def groups_read(self) -> None:
        if (name := self.topic()) is not None:
            self.groups.read(name)

    def write(self, name: str | None = None) -> None:
        if (name := name or self.topic()) is None:
            return
        topic = self.source.topics[name]
        index = self.rng.randrange(len(topic.logs))
        rows = [b"%d" % next(self.values) for _ in range(self.rng.randint(1, 6))]
        kind = self.rng.random()
        if kind < 0.5:
            self.source.write(name, index, rows)
        else:
            self.source.write_transaction(name, index, rows, committed=kind < 0.8)
        if kind < 0.8:
            self.written.setdefault((topic.id, index), []).extend(rows)

    def kill(self) -> None:
        member = self.members.pop(self.rng.randrange(len(self.members)))
        member.process.is_dead = True
        self.killed.append(member)
        self.start()

    def pause(self) -> None:
        member = self.rng.choice(self.members)
        member.process.running.clear()
        asyncio.get_running_loop().call_later(self.rng.random() * 5, member.process.running.set)

    def lose(self) -> None:
        member = self.rng.choice(self.members)
        member.process.lost = self.rng.choice((0.05, 0.3))
        asyncio.get_running_loop().call_later(self.rng.random() * 5, setattr, member.process, "lost", 0.0)

    def recreate(self) -> None:
        if (name := self.topic()) is not None:
            self.source.delete(name)
            self.source.create(name, self.rng.randint(1, 3))
            for _ in range(self.rng.randint(0, 12)):
                self.write(name)

    def gone(self) -> None:
        """Delete a topic, and make it some time later."""
        if (name := self.topic()) is not None:
            self.source.delete(name)
            asyncio.get_running_loop().call_later(self.rng.random() * COME_S_MAX, self.come, name)

    def come(self, name: str) -> None:
        if name not in self.source.topics:
            self.source.create(name, self.rng.randint(1, 3))
            self.write(name)

    def grow(self) -> None:
        if (name := self.topic()) is not None and len(self.source.topics[name].logs) < 5:
            self.source.topics[name].logs.append(Log())
            self.write(name)

    def cut(self) -> None:
        """The source loses its last records, and goes on in another epoch; sometimes it immediately becomes longer than before."""
        if (name := self.topic()) is None:
            return
        index = self.rng.randrange(len(self.source.topics[name].logs))
        log, before = self.source.topics[name].logs[index], set(self.source.topics[name].logs[index].values())
        log.cut(self.rng.randint(log.start, log.end))
        self.excused |= before - set(log.values())
        for _ in range(self.rng.choice((0, 0, 12))):
            self.write(name)

    def retain(self) -> None:
        if (name := self.topic()) is not None:
            log = self.rng.choice(self.source.topics[name].logs)
            before = set(log.values())
            kept = self.rng.randint(0, len(log.entries))
            if kept < len(log.entries):
                log.start = log.entries[kept].base
                log.entries = log.entries[kept:]
                log.aborted = [row for row in log.aborted if row[2] >= log.start]
            self.excused |= before - set(log.values())

    def lead(self) -> None:
        """Leaders change, in both clusters."""
        for side in (self.source, self.target):
            for topic in side.topics.values():
                for log in topic.logs:
                    log.epoch += self.rng.random() < 0.3

    def target_again(self) -> None:
        """A topic of the target is deleted: it is created again, and goes on at its position."""
        names = sorted(f"west.{name}" for name in (*TOPICS, "secret") if f"west.{name}" in self.target.topics)
        if names and self.rng.random() < 0.3:
            self.target.delete(self.rng.choice(names), forget=self.rng.random() < 0.5)

    def refuse(self) -> None:
        """The target accepts no records of a topic for a while: the other partitions go on, and this topic does so afterwards."""
        name = f"west.{self.topic()}"
        self.target.refusing.add(name)
        asyncio.get_running_loop().call_later(self.rng.random() * 5, self.target.refusing.discard, name)

    # -- The end -----------------------------------------------------------------------------------------------------------

    def heal(self) -> None:
        for member in self.members:
            member.process.running.set()
            member.process.lost = 0.0
        self.share()

    async def wait(self, check: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + HEALED_S_MAX
        while True:
            try:
                check()
                return
            except MirrorBroken:
                if loop.time() > until:
                    raise
            for member in self.members:
                assert member.task is not None
                if member.task.done():
                    raise MirrorBroken(f"a worker has ended: {member.task.exception()!r}")
            await asyncio.sleep(1)

    def check(self) -> None:
        found: dict[tuple[str, int], list[bytes]] = {}
        for topic_name, topic in self.target.topics.items():
            for index, log in enumerate(topic.logs):
                found[topic_name, index] = log.values()
        # A transaction that was open when its topic was deleted has lost the records that it had there.
        lost = {value for topic in self.target.deleted.values() for log in topic.logs for value in log.all_values()}
        for name in (*self.mirrored(), "secret"):
            for index, log in enumerate(self.source.topics[name].logs):
                there = found.get((f"west.{name}", index), [])
                if len(set(there)) != len(there):
                    raise MirrorBroken(f"{name}-{index}: twice {sorted(v for v in there if there.count(v) > 1)[:9]}")
                if name == "secret":
                    continue
                wanted = log.values()
                missing = [value for value in wanted if value not in there]
                if set(missing) - self.excused - lost:
                    raise MirrorBroken(f"{name}-{index}: {sorted(set(missing) - self.excused - lost)} are missing")
                order = [value for value in there if value in set(wanted)]
                if order != [value for value in wanted if value in set(order)]:
                    raise MirrorBroken(f"{name}-{index}: the order is {order}")
        for topic_id, deleted in self.source.deleted.items():
            for index in range(len(deleted.logs)):
                self._check_deleted(self.written.get((topic_id, index), []), found, lost)

    def check_rate(self) -> None:
        """With little data a lane makes few transactions, however many partitions it has."""
        for name, times in self.target.commits.items():
            for before, at in zip(times, times[COMMITS_MAX:], strict=False):
                if at - before < 1.0:
                    raise MirrorBroken(f"{name} has committed {COMMITS_MAX + 1} transactions within a second")

    def check_said(self) -> None:
        """Check that restarts of checkpoints were logged and counted."""
        counted = sum(each.worker.scheduled.restarted_checkpoints for each in (*self.members, *self.killed))
        said = [text for text in self.said if "begin again: it was deleted and created again in the" in text]
        if bool(counted) != bool(said):
            raise MirrorBroken(f"{counted} checkpoints began again, and it was said: {said}")

    def _check_deleted(self, written: list[bytes], found: dict[tuple[str, int], list[bytes]], lost: set[bytes]) -> None:
        everything = {value for row in found.values() for value in row}
        # Values that may be missing do not show how far the topic was mirrored: if a value was cut, the values before it may
        # not have arrived.
        there = [value in everything or value in lost for value in written if value not in self.excused]
        if True in there and not all(there[: len(there) - there[::-1].index(True)]):
            raise MirrorBroken(f"a deleted topic has a gap in the target: {written}, {there}")
        if not all(there) and not any("deleted and created again" in text for text in self.said) and True in there:
            raise MirrorBroken("a deleted topic is not mirrored whole, and that was not said")

    def end(self) -> None:
        for task in asyncio.all_tasks():
            if task is not asyncio.current_task():
                task.cancel()


def play(seed: int) -> History:
    """Play the history of a seed.

    Raises: MirrorBroken: the target is not correct.

    Raises:
        MirrorBroken: the target is not what it must be.
    """

    async def main() -> History:
        history = History(seed)
        await play_and_end(history)
        return history

    return run(main())
