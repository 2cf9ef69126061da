"""Channels to the other brokers on the inter-broker listener: one to each broker that gets requests.

A broker that was fenced or restarted will not respond, so pending requests to it fail when the metadata arrives, before their
timeout.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ottla.broker.configs import BrokerConfigs
from ottla.broker.metadata_cache import MetadataCache
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.network.channel_protocol import ChannelClosed
from ottla.server.network.client import Channel
from ottla.server.network.peer_security import PeerSecurity
from ottla.server.world import World


class BrokerChannels:
    def __init__(self, world: World, configs: BrokerConfigs, metadata: MetadataCache, security: PeerSecurity) -> None:
        self._world = world
        self._metadata = metadata
        self._security = security
        self._client_id = f"broker-{configs.node_id}"
        self._listener = configs.node.inter_broker_listener
        self._timeout_ms: int = configs["request.timeout.ms"]
        # Node id -> (broker epoch, channel).
        self._channels: dict[int, tuple[int, Channel]] = {}

    async def request(self, node_id: int, request: object) -> Any:
        """The broker's response; KafkaError NETWORK_EXCEPTION when it cannot be asked, or does not answer in time."""
        channel = self._channel(node_id)
        if channel is None:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"broker {node_id} is not known to be alive")
        try:
            # Connecting has a limit of its own.
            async with asyncio.timeout(self._timeout_ms / 1000):
                return await channel.request(request, timeout_ms=self._timeout_ms)
        except (ChannelClosed, TimeoutError) as error:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        for node_id, (epoch, _) in list(self._channels.items()):
            broker = image.cluster.brokers.get(node_id)
            if broker is None or broker.fenced or broker.epoch != epoch:
                self._channels.pop(node_id)[1].close()

    def close(self) -> None:
        for _, channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def _channel(self, node_id: int) -> Channel | None:
        broker = self._metadata.image.cluster.brokers.get(node_id)
        endpoint = None if broker is None or broker.fenced else broker.endpoint(self._listener)
        if broker is None or endpoint is None:
            return None
        known = self._channels.get(node_id)
        if known is not None and known[0] == broker.epoch:
            return known[1]
        channel = Channel(self._world, endpoint.host, endpoint.port, self._client_id, self._security)
        self._channels[node_id] = (broker.epoch, channel)
        return channel
