"""RaftNodes on real files and real sockets on loopback, in one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ottla.controller.raft.batches import CommittedBatch
from ottla.controller.raft.driver import RaftNode
from ottla.controller.raft.log_state import OffsetAndEpoch
from ottla.controller.raft.raft_config import RaftConfig
from ottla.controller.raft.routes import quorum_routes
from ottla.controller.raft.snapshots import SnapshotReader
from ottla.controller.raft.voters import QuorumEndpoint, ReplicaKey, Voter, VoterSet
from ottla.protocol.api import ApiKey
from ottla.server.clock import TimerWheel
from ottla.server.config.listeners import Endpoint
from ottla.server.handlers.api_versions import ApiVersionsHandler, Features
from ottla.server.network.dispatch import Dispatcher
from ottla.server.network.frames import ReceiveBuffer
from ottla.server.network.limits import ConnectionLimits
from ottla.server.network.listener import Listener
from ottla.server.network.route import Route, RouteTable
from ottla.server.world import RealWorld
from tests.ports import free_ports

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
WAIT_S = 30
#: With the default of 2 s a pause of a busy machine leads to another election, and the newest records of the former leader may
#: be lost.
FETCH_TIMEOUT_MS = 20_000


def directory_id(node_id: int) -> bytes:
    return node_id.to_bytes(16, "big")


class State:
    """A listener that remembers every record, and can write them to a snapshot."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.next_offset = 0
        self.last_epoch = 0
        self.leaders: list[tuple[int, int]] = []
        self.snapshots_loaded = 0

    def handle_commit(self, batches: list[CommittedBatch]) -> None:
        for batch in batches:
            assert batch.base_offset == self.next_offset
            self.next_offset, self.last_epoch = batch.last_offset + 1, batch.epoch
            self.records.extend(batch.records)

    def handle_snapshot(self, reader: SnapshotReader) -> None:
        self.records = [record for batch in reader for record in batch.records]
        self.next_offset, self.last_epoch = reader.offset, reader.epoch
        self.snapshots_loaded += 1

    def handle_leader_change(self, leader_id: int, epoch: int) -> None:
        self.leaders.append((leader_id, epoch))


def kill(raft: RaftNode) -> None:
    """Kill a node inside of this process, which goes on: it closes no connection in order, and none of its timers writes any
    more.
    """
    raft._stopped = True
    raft._tick_timer.cancel()
    raft._channels.close()


class Node:
    """One replica with its listener on a port."""

    def __init__(self, config: RaftConfig, directory: Path) -> None:
        self.config = config
        self.directory = directory
        self.is_up = False

    async def start(self) -> None:
        self.real = RealWorld(asyncio.get_running_loop())
        world = self.real.world
        self.state = State()
        self.raft = RaftNode(world, self.config, str(self.directory), self.state)
        api_versions = ApiVersionsHandler(lambda: Features({"kraft.version": (0, 1)}, {}))
        table = RouteTable([*quorum_routes(self.raft), Route(ApiKey.API_VERSIONS, api_versions)])
        api_versions.set_routes(table)
        endpoint = self.config.endpoints[0]
        self.listener = Listener(
            world,
            Endpoint(endpoint.name, endpoint.host, endpoint.port),
            Dispatcher(table, world.clock, world.spawn),
            ConnectionLimits(),
            ReceiveBuffer(1 << 20),
            TimerWheel(world.clock),
        )
        await self.listener.bind()
        await self.listener.accept()
        await self.raft.start()
        self.is_up = True

    async def stop(self) -> None:
        if self.is_up:
            self.is_up = False
            await self.raft.stop()
            await self._let_go()

    async def kill(self) -> None:
        """Kill the node without a message to others: its connections just break."""
        self.is_up = False
        kill(self.raft)
        await self._let_go()

    async def _let_go(self) -> None:
        self.listener.abort()
        await self.listener.stop()
        await self.real.close()


class Quorum:
    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes

    @property
    def up(self) -> list[Node]:
        return [node for node in self.nodes if node.is_up]

    @property
    def leader(self) -> Node | None:
        """Wait for the leader that all running nodes follow."""
        leaders = [node for node in self.up if node.raft.is_leader]
        if len(leaders) != 1 or any(node.raft.state.leader_id != leaders[0].config.node_id for node in self.up):
            return None
        published = leaders[0].state.leaders
        return (
            leaders[0]
            if published and published[-1] == (leaders[0].raft.state.leader_id, leaders[0].raft.state.epoch)
            else None
        )

    async def elect(self) -> Node:
        await until(lambda: self.leader is not None, "a leader")
        assert self.leader is not None
        return self.leader

    async def commit_everywhere(self, record: bytes) -> None:
        leader = await self.elect()
        leader.raft.append([record])
        await until(lambda: all(record in node.state.records for node in self.up), f"{record!r} on every node")


def make_node(node_id: int, ports: list[int], directory: Path, **settings: Any) -> Node:
    """Run nodes as static voters, unless `settings` say otherwise. Node 1 listens on the first port, and so on."""
    endpoints = [QuorumEndpoint("CONTROLLER", "127.0.0.1", port) for port in ports]
    voters = VoterSet.of(Voter(ReplicaKey(i + 1), (endpoint,)) for i, endpoint in enumerate(endpoints))
    settings = {"static_voters": voters, "fetch_timeout_ms": FETCH_TIMEOUT_MS, **settings}
    config = RaftConfig(node_id, directory_id(node_id), CLUSTER_ID, (endpoints[node_id - 1],), **settings)
    return Node(config, directory / f"node{node_id}")


@asynccontextmanager
async def quorum(count: int, directory: Path, **settings: Any) -> AsyncIterator[Quorum]:
    ports = free_ports(count)
    nodes = [make_node(node_id, ports, directory, **settings) for node_id in range(1, count + 1)]
    for node in nodes:
        await node.start()
    made = Quorum(nodes)
    try:
        yield made
    finally:
        for node in nodes:
            await node.stop()


async def until(condition: Callable[[], bool], what: str) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + WAIT_S
    while not condition():
        assert loop.time() < deadline, f"waited {WAIT_S} s for {what}"
        await asyncio.sleep(0.002)


def take_snapshot(node: Node) -> OffsetAndEpoch:
    snapshot = OffsetAndEpoch(node.state.next_offset, node.state.last_epoch)
    writer = node.raft.create_snapshot(snapshot, 0)
    assert writer is not None
    writer.append(node.state.records)
    writer.freeze()
    node.raft.snapshot_created(snapshot)
    return snapshot
