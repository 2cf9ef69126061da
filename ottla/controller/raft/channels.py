"""Connections to the other replicas, and the requests on them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.controller.raft.effects import Request
from ottla.controller.raft.messages import Answered, Failed, Fetch
from ottla.controller.raft.voters import QuorumEndpoint
from ottla.controller.raft.wire.requests_out import reply_from_wire, request_to_wire
from ottla.protocol.errors import KafkaError, ProtocolError, UnsupportedVersion
from ottla.server.network.channel_protocol import ChannelClosed, RequestTimeout
from ottla.server.network.client import Channel
from ottla.server.network.peer_security import PeerSecurity

if TYPE_CHECKING:
    from ottla.server.world import World

logger = logging.getLogger(__name__)


class Channels:
    def __init__(self, world: World, node_id: int, security: PeerSecurity) -> None:
        self._world = world
        self._node_id = node_id
        self._security = security
        self._open: dict[tuple[QuorumEndpoint, bool], Channel] = {}

    async def ask(self, request: Request) -> Answered | Failed:
        """Sends the request; returns the reply or a `Failed`. It does not raise: a peer's failure is an ordinary event."""
        # Fetches have a connection of their own: responses come in order, and a fetch may be delayed for long.
        key = (request.endpoint, isinstance(request.body, Fetch))
        channel = self._open.get(key)
        if channel is None:
            channel = self._open[key] = self._channel(request.endpoint)
        request_id = request.request_id
        try:
            response = await channel.request(request_to_wire(request.body), timeout_ms=request.timeout_ms)
            return Answered(request_id, reply_from_wire(request.body, response, request.endpoint.name))
        except RequestTimeout:
            return Failed(request_id)
        except ChannelClosed:
            return Failed(request_id, connection_closed=True)
        except UnsupportedVersion:
            return Failed(request_id, unsupported_version=True)
        except (KafkaError, ProtocolError) as fault:
            logger.warning("[raft %d] %s: %s", self._node_id, request.endpoint, fault)
            return Failed(request_id)

    def close(self) -> None:
        for channel in self._open.values():
            channel.close()

    def _channel(self, endpoint: QuorumEndpoint) -> Channel:
        return Channel(self._world, endpoint.host, endpoint.port, f"raft-client-{self._node_id}", self._security)
