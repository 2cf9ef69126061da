"""Seeded faults, within what is promised (docs/dev/SIMULATOR.md).

kill        of any nodes at any time: the kernel has their pages
power       of one node; the next one only once this one is in sync everywhere again, and no other node is killed until then.
            With a flush before each acknowledgement: of any nodes, of all at once
bad disk    a call fails, and what was not synced may be lost: as power
lost disk   a directory, or the whole disk of a broker, is taken away for good: of one node as power, and only where every
            partition has another replica in sync. With the flush the others may stop in any way from the moment it is gone
the rest    at any time
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from ottla.controller.raft.metadata_log import DIRECTORY, RESERVE
from ottla.controller.raft.voters import ReplicaKey
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest
from ottla.storage.errors import StorageFailure
from tests.histories import Violation
from tests.sim.clients.admin import Admin
from tests.sim.cluster import SUPERVISOR_SECONDS, SimCluster, SimNode
from tests.sim.disk import CAPACITY_BYTES
from tests.sim.history import History
from tests.sim.world import DISK_SECONDS_MAX, HangingDisk

HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Fault:
    name: str
    weight: int
    strike: Callable[[Faults, SimNode], Awaitable[None]]
    #: Faults that may cost their node unsynced data, or look as if they had.
    kills: bool = False
    loses: bool = False
    #: Faults that stop their node cleanly: the next start has the proof that nothing was lost.
    in_order: bool = False
    #: Its node's "disk", or one "directory" of it, does not come back.
    takes: str = ""
    #: The fault strikes every running node, whichever node was drawn for it.
    of_all: bool = False


class Faults:
    """Strikes until it is stopped. `heal` undoes the faults that an operator would undo, and starts the nodes that are down."""

    def __init__(
        self,
        cluster: SimCluster,
        rng: random.Random,
        history: History,
        clients: Sequence[str],
        admin: Admin,
        *,
        flushes: bool,
        unmounts: random.Random | None = None,
    ) -> None:
        self.cluster, self.rng, self.history, self.clients, self.admin = cluster, rng, history, clients, admin
        self.flushes = flushes
        #: These have their own random numbers, so that the other faults of a seed stay as they were.
        self._unmounts = unmounts
        self.struck: dict[str, int] = {}
        #: The node may have lost unsynced data, and is not in every ISR again yet.
        self.lossy: SimNode | None = None
        #: The node's disk will be removed soon, and records that it acknowledges until then may be on only one other node.
        self._losing: SimNode | None = None
        self._busy: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._over = False
        self.not_outlived: list[str] = []

    async def run(self, seconds: float, pause_seconds: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        supervisor = self._spawn(self._supervise())
        while loop.time() < end:
            await asyncio.sleep(min(self.rng.expovariate(1 / pause_seconds), end - loop.time()))
            fault = self.rng.choices(FAULTS, [fault.weight for fault in FAULTS])[0]
            node = self.rng.choice(self.cluster.nodes)
            if self._may(fault, node):
                self.struck[fault.name] = self.struck.get(fault.name, 0) + 1
                self.history.note(f"FAULT {fault.name} at {node}")
                self._spawn(self._strike(fault, node))
        self._over = True
        await supervisor

    async def heal(self) -> None:
        """End all faults; those that heal by themselves are waited for."""
        self._over = True
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=60)
        self.cluster.hub.heal()
        for node in self.cluster.nodes:
            node.host.disk.disarm()
            node.host.disk.room_bytes = CAPACITY_BYTES
            node.host.disk_seconds_max = DISK_SECONDS_MAX
            node.host.repair()
            node.host.resume()
            if node.has_failed or node.has_lost_directory:
                await node.crash(power=False)
            if node.server is None:
                node.boot()
        self.history.note("healed")
        if self.not_outlived:
            raise Violation("54", "; ".join(self.not_outlived))

    def _spawn(self, coroutine: Awaitable[None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _strike(self, fault: Fault, node: SimNode) -> None:
        exclusive = fault.kills or fault.loses
        if exclusive:
            self._busy.add(node.number)
        try:
            await fault.strike(self, node)
        finally:
            if exclusive:
                self._busy.discard(node.number)
            if fault.takes:
                self._losing = None  # if it came to nothing

    def _may(self, fault: Fault, node: SimNode) -> bool:
        if not (fault.kills or fault.loses):
            return True
        if node.number in self._busy or not node.is_up or node.is_leaving:
            return False
        if fault.takes and not self._may_take(fault, node):
            return False
        if fault.in_order or not (node.is_broker or fault.of_all):
            return True
        if self.flushes:
            return self._losing is None
        # A node that will lose its disk soon is still running, but its disk already counts as lost (seed 618: two of three).
        if self.lossy is not None and self.lossy.number not in self._busy and self.is_whole(self.lossy):
            self.lossy = None
        if fault.loses:
            others = [other for other in self.cluster.brokers if other is not node]
            if self.lossy in (None, node) and all(self.is_whole(other) for other in others):
                self.lossy = node
                return True
            return False
        return self.lossy is None or (self.lossy is node and not fault.of_all)

    def _may_take(self, fault: Fault, node: SimNode) -> bool:
        """Return whether every partition has another replica in sync, and no other disk waits for its replacement."""
        active = self.cluster.active_controller
        if active is None or active.server is None or not node.is_broker or not node.is_serving:
            return False
        # A controller keeps its vote on its disk; with two directories, the vote is in the first.
        if node.is_controller if fault.takes == "disk" else "," not in node.properties["log.dirs"]:
            return False
        if not all(self.is_whole(other) for other in self.cluster.brokers if other is not node):
            return False
        image = active.server.metadata.loader.image
        if not image.features.elr_enabled:
            return False  # the last replica would be elected, with its disk or without it
        for topic in image.topics:
            for registration in topic.partitions.values():
                if node.number in registration.replicas and not set(registration.isr) - {node.number}:
                    return False
        self._losing = node
        return True

    def is_whole(self, node: SimNode) -> bool:
        """Return whether the controller has the node in every ISR, in its present life."""
        active = self.cluster.active_controller
        if (
            active is None
            or active.server is None
            or not node.is_serving
            or not node.is_up
            or node.has_failed
            or node.has_lost_directory
        ):
            return False
        image = active.server.metadata.loader.image
        broker = image.cluster.brokers.get(node.number)
        assert node.server is not None and node.server._lifecycle is not None
        if broker is None or broker.fenced or broker.epoch != node.server._lifecycle.broker_epoch:
            return False
        return all(
            node.number in registration.isr
            for topic in image.topics
            for registration in topic.partitions.values()
            if node.number in registration.replicas
        )

    async def _supervise(self) -> None:
        """Start nodes again that ended by themselves."""
        while not self._over:
            await asyncio.sleep(0.2)
            for node in self.cluster.nodes:
                if (
                    node.number not in self._busy
                    and not node.is_leaving
                    and node.server is not None
                    and node.has_failed
                ):
                    self._busy.add(node.number)
                    self.history.note(f"{node} has ended: {node.failure!r}")
                    self._spawn(self._restart(node))

    async def _restart(self, node: SimNode) -> None:
        try:
            await self._down(node, power=False, seconds=SUPERVISOR_SECONDS)
        finally:
            self._busy.discard(node.number)

    # -- What strikes ------------------------------------------------------------------------------------------------

    async def _down(self, node: SimNode, power: bool, seconds: tuple[float, float] = (0.1, 8.0)) -> None:
        await node.crash(power)
        if self._unmounts is not None and node.is_controller and self._unmounts.random() < 0.5:
            self.struck["disk not mounted"] = self.struck.get("disk not mounted", 0) + 1
            self.history.note(f"the disk of {node} is not mounted")
            await node.live_unmounted(self._unmounts)
        await asyncio.sleep(self.rng.uniform(*seconds))
        node.host.disk.room_bytes = CAPACITY_BYTES
        node.boot()
        self.history.note(f"{node} starts its life {node.life}")

    async def kill(self, node: SimNode) -> None:
        await self._down(node, power=False)

    async def kill_within(self, node: SimNode) -> None:
        """Kill the node in the middle of one of its next calls; the supervisor notices."""
        node.host.disk.kill_after(self.rng.randint(1, 60))
        await asyncio.sleep(3)
        node.host.disk.disarm()
        if node.has_failed:
            await self._down(node, power=False)

    async def power(self, node: SimNode) -> None:
        await self._down(node, power=True)

    async def power_of_all(self, node: SimNode) -> None:
        """Cut the power of all nodes, or of this node alone if nodes acknowledge without a flush."""
        nodes = self.cluster.nodes if self.flushes else [node]
        struck = [each for each in nodes if each is node or (each.number not in self._busy and each.is_up)]
        self._busy.update(each.number for each in struck)
        try:
            await asyncio.gather(*(self._down(each, power=True, seconds=(0.1, 2.0)) for each in struck))
        finally:
            self._busy.difference_update(each.number for each in struck)

    async def kill_all(self, node: SimNode) -> None:
        struck = [each for each in self.cluster.nodes if each is node or (each.number not in self._busy and each.is_up)]
        self._busy.update(each.number for each in struck)
        try:
            await asyncio.gather(*(self._down(each, power=False, seconds=(0.1, 2.0)) for each in struck))
        finally:
            self._busy.difference_update(each.number for each in struck)

    async def bad_disk(self, node: SimNode) -> None:
        node.host.disk.fail_after(self.rng.randint(1, 40))
        await asyncio.sleep(4)
        node.host.disk.disarm()
        if node.has_failed or node.has_lost_directory:
            await self._down(node, power=False)

    async def take_directory(self, node: SimNode) -> None:
        """A directory fails, or its files are gone after a clean stop; the node goes on without it."""
        paths = node.properties["log.dirs"].split(",")
        server = node.server
        if server is None or server.logs is None:
            return
        if self.rng.random() < 0.5:
            for directory in server.logs.directories:
                if directory.path == paths[-1] and directory.online:
                    server.logs.open.directory_failed(directory, StorageFailure(directory.path, OSError(5, "EIO")))
            await asyncio.sleep(self.rng.uniform(0, 3))
        if node.is_serving and node.is_up:
            await node.stop()
        else:
            await node.crash(power=False)
        self._remove(node, paths[-1])
        self._losing = None
        node.properties["log.dirs"] = paths[0]
        await asyncio.sleep(self.rng.uniform(0.1, 2))
        node.boot()
        self.history.note(f"{node} goes on without {paths[-1]}")

    async def replace(self, node: SimNode) -> None:
        """The machine is lost; another one gets its name, with or without an unregistration of the old one."""
        await node.crash(power=False)
        for path in node.properties["log.dirs"].split(","):
            self._remove(node, path)
        self._losing = None
        node.disks += 1
        if self.rng.random() < 0.5:
            self.admin.spawn(self.admin.send(UnregisterBrokerRequest(broker_id=node.number)), "unregisters")
            await asyncio.sleep(self.rng.uniform(0.1, 3))
        await asyncio.sleep(self.rng.uniform(0.1, 3))
        node.boot()
        self.history.note(f"{node} starts its life {node.life} on an empty disk")

    def _remove(self, node: SimNode, path: str) -> None:
        disk = node.host.disk
        disk.remove_tree(path)
        disk.sync_dir(path.rpartition("/")[0] or "/")

    async def slow_disk(self, node: SimNode) -> None:
        """All calls take long. With two disks, instead the second one may hang while the first goes on."""
        host, (_, *others) = node.host, node.properties["log.dirs"].split(",")
        before, seconds_max = host.disk_seconds_max, self.rng.choice((0.05, 0.3, 1.0))
        if others and seconds_max == 1.0:
            self.struck["disk hangs"] = self.struck.get("disk hangs", 0) + 1
            for other in others:  # one that hangs already has jobs that wait for its repair
                host.hanging.setdefault(other, HangingDisk())
        else:
            host.disk_seconds_max = seconds_max
        await asyncio.sleep(self.rng.uniform(1, 8))
        host.repair()
        host.disk_seconds_max = before

    async def stall_controller(self, node: SimNode) -> None:
        """The active controller is suspended; the others run, and may elect another one."""
        active = self.cluster.active_controller
        if active is not None:
            await self.stall(active)

    async def leader_from_controller(self, node: SimNode) -> None:
        """Clients and one follower still reach the leader, but the controllers and the other follower do not."""
        active = self.cluster.active_controller
        if active is None or active.server is None:
            return
        led = sorted(
            {
                registration.leader
                for topic in active.server.metadata.loader.image.topics
                for registration in topic.partitions.values()
                if registration.leader >= 0
            }
        )
        leaders = [self.cluster.by_number[number] for number in led if number != active.number]
        if not leaders:
            return
        leader = self.rng.choice(leaders)
        others = [each for each in self.cluster.brokers if each not in (leader, active)]
        cut_off = [active, self.rng.choice(others)] if others else [active]
        links = [(leader.host.name, each.host.name) for each in self.cluster.nodes if each.is_controller]
        reached = {each.host.name for each in others if each not in cut_off}
        links = [link for link in links if link[1] not in reached and link[1] != leader.host.name]
        links += [(leader.host.name, each.host.name) for each in cut_off]
        await self._cut(list(dict.fromkeys(links)), both=True)

    async def change_voters(self, node: SimNode) -> None:
        """A voter joins or leaves the quorum, if the voters are in the log (KIP-853)."""
        active = self.cluster.active_controller
        if active is None or active.server is None:
            return
        voters = active.server.metadata.raft.state.voters
        if voters.kraft_version < 1:
            return
        outside = [each for each in self.cluster.nodes if each.is_controller and each.number not in voters.last.ids]
        if outside and (len(voters.last) < 3 or self.rng.random() < 0.6):
            joining = self.rng.choice(outside)
            if joining.is_up and joining.server is not None and joining.server.started_metadata:
                await self.admin.add_voter(joining.server.metadata.raft.state.key, joining.host.name)
        elif len(voters.last) > 2:
            leaving = self.rng.choice(list(voters.last))
            await self.admin.remove_voter(ReplicaKey(*leaving.key))

    async def power_before_flush(self, node: SimNode) -> None:
        """A voter loses power, and with it the metadata that its own disk did not have yet.

        At the same time the leader, from which no other voter could fetch, is cut off. The voter must still have everything
        that it was counted for.
        """
        active = self.cluster.active_controller
        if active is None or active.server is None or active is node:
            return
        voters = active.server.metadata.raft.voter_ids
        if node.number not in voters or len(voters) > 3:
            return  # of five it would take two
        hub, before = self.cluster.hub, node.host.disk_seconds_max
        node.host.disk_seconds_max = 1.0
        links = [(active.host.name, each.host.name) for each in self.cluster.nodes if each is not active]
        links += [(target, source) for source, target in links]
        try:
            for link in links:
                if node.host.name not in link:
                    hub.cut(*link)
            # The others become candidates after two seconds without the leader.
            await asyncio.sleep(self.rng.uniform(0.3, 1.5))
            for link in links:
                hub.cut(*link)
            node.host.disk_seconds_max = before
            await self._down(node, power=True, seconds=(0.1, 1.0))
            await asyncio.sleep(self.rng.uniform(3, 6))
        finally:
            node.host.disk_seconds_max = before
            for link in links:
                hub.mend(*link)

    async def full_disk(self, node: SimNode) -> None:
        """The node has to survive a full disk, and to go on by itself once there is space, also after a long time and with its
        reserve used up.
        """
        disk = node.host.disk
        room, seconds = self.rng.choice((0, 500, 5000)), self.rng.uniform(0.2, 4)
        reserve = f"{node.metadata_directory}/{DIRECTORY}/{RESERVE}"
        if int(seconds * 1000) % 3 == 0 and disk.exists(reserve):
            disk.truncate(reserve, 0)
        disk.room_bytes = disk.used_bytes() + room
        await asyncio.sleep(seconds if seconds < 3 else 8 * seconds)
        disk.room_bytes = CAPACITY_BYTES
        if node.is_serving and (why := node.end_of_full_disk):
            self.not_outlived.append(f"{node} has not outlived a full disk: {why}")
        if node.has_failed:
            await self._down(node, power=False)

    async def restart(self, node: SimNode) -> None:
        """Restart the node cleanly, with controlled shutdown."""
        if not node.is_serving:
            return
        await node.stop()
        await asyncio.sleep(self.rng.uniform(0.1, 2))
        node.boot()

    async def stall(self, node: SimNode) -> None:
        node.host.pause()
        await asyncio.sleep(self.rng.choice((0.2, 1, 4, 12)) * self.rng.uniform(0.5, 1.5))
        node.host.resume()

    async def isolate(self, node: SimNode) -> None:
        others = [other.host.name for other in self.cluster.nodes if other is not node]
        if self.rng.random() < 0.3:
            others += self.clients
        await self._cut([(node.host.name, other) for other in others], both=True)

    async def cut(self, node: SimNode) -> None:
        other = self.rng.choice([*(each.host.name for each in self.cluster.nodes if each is not node), *self.clients])
        await self._cut([(node.host.name, other)], both=True)

    async def cut_one_way(self, node: SimNode) -> None:
        others = [other.host.name for other in self.cluster.nodes if other is not node]
        some = self.rng.sample(others, self.rng.randint(1, len(others)))
        links = [(node.host.name, other) for other in some]
        if self.rng.random() < 0.5:
            links = [(target, source) for source, target in links]
        await self._cut(links, both=False)

    async def _cut(self, links: list[tuple[str, str]], both: bool) -> None:
        links += [(target, source) for source, target in links] if both else []
        hub = self.cluster.hub
        for link in links:
            hub.cut(*link)
        await asyncio.sleep(self.rng.choice((0.3, 2, 6, 14)) * self.rng.uniform(0.5, 1.5))
        self.rng.shuffle(links)
        for link in links:
            hub.mend(*link)
            await asyncio.sleep(self.rng.choice((0, 0, 0.3)))

    async def slow(self, node: SimNode) -> None:
        names = [other.host.name for other in self.cluster.nodes if other is not node]
        links = [pair for name in names for pair in ((node.host.name, name), (name, node.host.name))]
        delay_ms = self.rng.choice((20, 100, 400, 1500))
        for link in links:
            self.cluster.hub.slow_down(*link, delay_ms)
        await asyncio.sleep(self.rng.uniform(1, 8))
        for link in links:
            self.cluster.hub.mend(*link)

    async def slow_connections(self, node: SimNode) -> None:
        """Slow connections down: of two messages on different connections, the later one may arrive much earlier."""
        rng = self.rng
        hub = self.cluster.hub
        struck = hub.connections_of(node.host.name)
        for connection in struck:
            hub.slow_connections([connection], rng.choice((0, 0, 30, 200, 900)))
        await asyncio.sleep(rng.uniform(1, 8))
        hub.slow_connections(struck, 0)

    async def reset(self, node: SimNode) -> None:
        names = [*(each.host.name for each in self.cluster.nodes if each is not node), *self.clients]
        for name in self.rng.sample(names, self.rng.randint(1, len(names))):
            self.cluster.hub.reset(node.host.name, name)

    async def skew(self, node: SimNode) -> None:
        node.host.clock.skew_ms = self.rng.choice((0, 1000, -1000, 60_000, -60_000, HOUR_MS, -HOUR_MS))


FAULTS = (
    Fault("kill", 8, Faults.kill, kills=True),
    Fault("kill within a call", 6, Faults.kill_within, kills=True),
    Fault("kill of all", 1, Faults.kill_all, kills=True, of_all=True),
    Fault("power loss", 6, Faults.power, loses=True),
    Fault("power loss of all", 2, Faults.power_of_all, loses=True),
    Fault("power before flush", 4, Faults.power_before_flush, loses=True),
    Fault("bad disk", 3, Faults.bad_disk, loses=True),
    Fault("directory taken", 8, Faults.take_directory, loses=True, takes="directory"),
    Fault("disk replaced", 8, Faults.replace, loses=True, takes="disk"),
    Fault("full disk", 2, Faults.full_disk, kills=True),
    Fault("restart", 4, Faults.restart, kills=True, in_order=True),
    Fault("pause", 8, Faults.stall),
    Fault("isolation", 6, Faults.isolate),
    Fault("cut", 6, Faults.cut),
    Fault("one-way cut", 5, Faults.cut_one_way),
    Fault("slow links", 4, Faults.slow),
    Fault("slow connections", 6, Faults.slow_connections),
    Fault("reset", 6, Faults.reset),
    Fault("clock skew", 2, Faults.skew),
    Fault("slow disk", 3, Faults.slow_disk),
    Fault("controller stall", 3, Faults.stall_controller),
    Fault("leader from controller", 3, Faults.leader_from_controller),
    Fault("voters change", 4, Faults.change_voters),
)
