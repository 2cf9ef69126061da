"""A controller on a real disk and a real port, with a broker that has only its lifecycle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ottla.broker.cluster.channels import ControllerAddress, ControllerChannel, forward
from ottla.broker.cluster.lifecycle import BrokerIdentity, BrokerLifecycle
from ottla.controller.controller_node import ControllerNode, MetadataNode
from ottla.controller.decisions.configs import ConfigDecisions
from ottla.controller.decisions.control_state import ControlSettings
from ottla.controller.metadata.cluster import RegisteredEndpoint
from ottla.controller.raft.raft_config import RaftConfig
from ottla.controller.raft.voters import QuorumEndpoint, ReplicaKey, Voter, VoterSet
from ottla.protocol.api import APIS, ApiKey, encode_request_header
from ottla.protocol.compile import decode, encode
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.server.clock import TimerWheel
from ottla.server.config.broker import BROKER_CONFIGS
from ottla.server.config.listeners import Endpoint
from ottla.server.handlers.api_versions import ApiVersionsHandler
from ottla.server.network.client import Channel
from ottla.server.network.context import RequestContext
from ottla.server.network.dispatch import Dispatcher
from ottla.server.network.frames import ReceiveBuffer
from ottla.server.network.limits import ConnectionLimits
from ottla.server.network.listener import Listener
from ottla.server.network.route import Route, RouteTable
from ottla.server.world import RealWorld
from tests.controller.raft.nodes import FETCH_TIMEOUT_MS, kill
from tests.ports import free_ports

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
#: The limit is for an election and what follows it: three nodes in one process need more than a second for that while other
#: tests run.
SECONDS_MAX = 30


class Node:
    """A controller, and a broker that has only its lifecycle."""

    def __init__(
        self,
        directory: Path,
        *,
        previous_broker_epoch: int = -1,
        node_id: int = 1,
        ports: Mapping[int, int] | None = None,
    ) -> None:
        """Make a node. `ports` are those of all controllers by node id, if there are several."""
        ports = ports or {node_id: free_ports(1)[0]}
        self.real = RealWorld(asyncio.get_running_loop())
        world = self.real.world
        self.node_id = node_id
        self.port = ports[node_id]
        voters = [
            Voter(ReplicaKey(voter), (QuorumEndpoint("CONTROLLER", "127.0.0.1", port),))
            for voter, port in ports.items()
        ]
        config = RaftConfig(
            node_id=node_id,
            directory_id=bytes((node_id,)) * 16,
            cluster_id=CLUSTER_ID,
            endpoints=(QuorumEndpoint("CONTROLLER", "127.0.0.1", self.port),),
            static_voters=VoterSet.of(voters),
            fetch_timeout_ms=FETCH_TIMEOUT_MS,
        )
        self.metadata = MetadataNode(world, config, str(directory))
        defaults = {name: key.default for name, key in BROKER_CONFIGS.items() if not key.required}
        endpoint = RegisteredEndpoint("CONTROLLER", "127.0.0.1", self.port, 0)
        settings = ControlSettings(node_id=node_id, cluster_id=CLUSTER_ID, metadata_max_idle_interval_ms=0)
        self.node = ControllerNode(world, self.metadata, settings, ConfigDecisions(node_id, defaults), [endpoint])
        self.channel = ControllerChannel(world, node_id, self._locate)
        self.metadata.leader_watchers.append(self.channel.leader_changed)
        self.lifecycle = self.broker(node_id, previous_broker_epoch=previous_broker_epoch)
        api_versions = ApiVersionsHandler(self.metadata.features)
        table = RouteTable([*self.node.routes(), Route(ApiKey.API_VERSIONS, api_versions)])
        api_versions.set_routes(table)
        dispatcher = Dispatcher(table, world.clock, world.spawn)
        self.listener = Listener(
            world,
            Endpoint("CONTROLLER", "127.0.0.1", self.port),
            dispatcher,
            ConnectionLimits(),
            ReceiveBuffer(1 << 20),
            TimerWheel(world.clock),
        )

    def broker(
        self,
        node_id: int = 1,
        channel: ControllerChannel | None = None,
        *,
        registration_timeout_ms: int = SECONDS_MAX * 1_000,
        heartbeat_interval_ms: int = 2_000,
        session_timeout_ms: int = 9_000,
        **identity: Any,
    ) -> BrokerLifecycle:
        """Return the lifecycle of another broker process, which shares only the metadata."""
        given: dict[str, Any] = {
            "cluster_id": CLUSTER_ID,
            "endpoints": [RegisteredEndpoint("PLAINTEXT", "127.0.0.1", 9092, 0)],
            "directories": [bytes((node_id,)) * 16],
        }
        lifecycle = BrokerLifecycle(
            self.real.world,
            BrokerIdentity(node_id, **given | identity),
            channel or self.channel,
            lambda: self.metadata.loader.last_offset,
            registration_timeout_ms=registration_timeout_ms,
            heartbeat_interval_ms=heartbeat_interval_ms,
            session_timeout_ms=session_timeout_ms,
        )
        self.metadata.loader.add_publisher(lifecycle)
        return lifecycle

    def new_channel(self) -> ControllerChannel:
        """Return a separate connection, as another process would have."""
        return ControllerChannel(self.real.world, 2, self._locate)

    def _locate(self) -> ControllerAddress | None:
        endpoint = self.metadata.raft.state.leader_endpoint
        return (
            None
            if endpoint is None
            else ControllerAddress(self.metadata.raft.state.leader_id, endpoint.host, endpoint.port)
        )

    async def start(self) -> None:
        await self.metadata.raft.open()
        await self.listener.bind()
        await self.listener.accept()
        await self.metadata.raft.begin()
        self.lifecycle.ready_to_unfence()
        self.lifecycle.start()
        async with asyncio.timeout(SECONDS_MAX):
            await self.lifecycle.unfenced

    async def stop_metadata(self) -> None:
        """Stop the metadata of a node that has started nothing else."""
        self.channel.close()
        await self.node.stop()
        await self.metadata.raft.stop()
        await self.real.close()

    async def stop(self) -> None:
        self.lifecycle.stop()
        self.channel.close()
        await self.node.stop()
        await self.metadata.raft.stop()
        await self.listener.stop()
        await self.real.close()

    async def crash(self) -> None:
        """Stop without a message to other nodes, and without a flush. The next life has the same files, so later decisions of
        this one, such as fencing the broker whose connection breaks here, must not be written to them.
        """
        self.listener.abort()
        self.node.controller.stop()
        kill(self.metadata.raft)
        self.lifecycle.stop()
        self.channel.close()
        await self.real.close()
        await self.listener.stop()

    async def wait(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(SECONDS_MAX):
            while not condition():  # noqa: ASYNC110  the image has no events
                await asyncio.sleep(0.002)


@asynccontextmanager
async def running(directory: Path) -> AsyncIterator[Node]:
    node = Node(directory)
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


async def forwarded(channel: ControllerChannel, context: RequestContext, request: Any) -> Any:
    """Return the response that a client in that context gets for its request, through a broker."""
    header = encode_request_header(context.api_key, context.api_version, 1, context.client_id)
    body = await forward(channel, header + encode(request, context.api_version), context)
    return decode(APIS[ApiKey(context.api_key)].response, bytes(body), context.api_version)


async def create(channel: Channel, *names: str) -> list[int]:
    topics = [CreatableTopic(name=name, num_partitions=3, replication_factor=1) for name in names]
    response = await channel.request(CreateTopicsRequest(topics=topics))
    return [topic.error_code for topic in response.topics]
