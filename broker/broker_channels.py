"""Ways to the other brokers, by the listener that brokers use among themselves: one channel to each that is asked something."""

from __future__ import annotations

from typing import Any

from broker.configs import BrokerConfigs
from broker.metadata_cache import MetadataCache
from protocol.errors import ErrorCode, KafkaError
from server.network.client import Channel, ChannelClosed
from server.world import World


class BrokerChannels:
    def __init__(self, world: World, configs: BrokerConfigs, metadata: MetadataCache) -> None:
        self._world = world
        self._metadata = metadata
        self._client_id = f"broker-{configs.node_id}"
        self._listener: str = configs["inter.broker.listener.name"] or configs["security.inter.broker.protocol"]
        self._timeout_ms: int = configs["request.timeout.ms"]
        self._channels: dict[int, Channel] = {}

    async def request(self, node_id: int, request: Any) -> Any:
        """The broker's answer; KafkaError NETWORK_EXCEPTION when it cannot be asked."""
        channel = self._channel(node_id)
        if channel is None:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"broker {node_id} is not known to be alive")
        try:
            return await channel.request(request, timeout_ms=self._timeout_ms)
        except ChannelClosed as error:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def _channel(self, node_id: int) -> Channel | None:
        broker = self._metadata.image.cluster.brokers.get(node_id)
        endpoint = None if broker is None or broker.fenced else broker.endpoint(self._listener)
        if endpoint is None:
            return None
        channel = self._channels.get(node_id)
        if channel is None or (channel.host, channel.port) != (endpoint.host, endpoint.port):
            if channel is not None:
                channel.close()
            channel = Channel(self._world, endpoint.host, endpoint.port, self._client_id)
            self._channels[node_id] = channel
        return channel
