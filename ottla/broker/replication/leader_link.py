"""The connection of a fetcher to its leader: made again after it was lost, each time after a longer pause."""

from __future__ import annotations

from collections.abc import Callable

from ottla.controller.metadata.cluster import RegisteredEndpoint
from ottla.protocol.api import APIS, ApiKey
from ottla.server.network.channel_protocol import ChannelProtocol
from ottla.server.network.client import Channel
from ottla.server.network.peer_security import PeerSecurity
from ottla.server.network.wire import ChannelClosed
from ottla.server.world import World

#: The delay after a lost connection, doubled each time: a restarted process is there soon, a dead one is replaced by the metadata.
CONNECT_RETRY_MS_MIN = 20
CONNECT_RETRY_MS_MAX = 500
#: A lost leader may be about to be fenced for this long after its last response; later the fetcher stops waiting for that.
SUSPICION_MS = 1_500
#: KIP-903: the follower's id and broker epoch. Older leaders cannot distinguish a restarted follower from the former one.
REPLICA_STATE_VERSION = 15


class LeaderLink:
    def __init__(
        self,
        world: World,
        leader_id: int,
        client_id: str,
        security: PeerSecurity,
        locate: Callable[[], RegisteredEndpoint | None],
    ) -> None:
        self.channel: Channel | None = None
        self.protocol: ChannelProtocol | None = None
        #: The version of Fetch.
        self.version = APIS[ApiKey.FETCH].max_version
        self._world = world
        self._leader_id = leader_id
        self._client_id = client_id
        self._security = security
        self._locate = locate
        self._retry_ms = CONNECT_RETRY_MS_MIN
        self._answered_ms = -1

    @property
    def was_lost_lately(self) -> bool:
        if self.protocol is not None and not self.protocol.closed:
            return False
        return self._answered_ms >= 0 and self._world.clock.mono_ms() - self._answered_ms < SUSPICION_MS

    def require(self) -> Channel:
        """Return the channel for another request than Fetch.

        Raises:
            ChannelClosed: the connection was lost.
        """
        if self.channel is None:
            raise ChannelClosed(f"the connection to broker {self._leader_id} was lost")
        return self.channel

    async def connect(self) -> tuple[ChannelProtocol, int]:
        """Return a new connection and the version of Fetch on it, for `connected`.

        Raises:
            ChannelClosed: the leader is not registered, not reachable or too old.
        """
        address = self._locate()
        if address is None:
            raise ChannelClosed(f"broker {self._leader_id} is not registered")
        channel = self.channel = Channel(self._world, address.host, address.port, self._client_id, self._security)
        protocol = await channel.connect()
        _, highest = protocol.wire.versions.get(ApiKey.FETCH, (0, -1))
        if highest < REPLICA_STATE_VERSION:
            raise ChannelClosed(f"broker {self._leader_id} has Fetch up to version {highest} only")
        return protocol, min(highest, APIS[ApiKey.FETCH].max_version)

    def connected(self, protocol: ChannelProtocol, version: int) -> None:
        """Fetches go over this connection, and the next pause is a short one."""
        self.protocol, self.version = protocol, version
        self._retry_ms = CONNECT_RETRY_MS_MIN

    def answered(self) -> None:
        self._answered_ms = self._world.clock.mono_ms()

    def next_retry_ms(self) -> int:
        """Return the pause before the next attempt."""
        retry_ms = self._retry_ms
        self._retry_ms = min(2 * retry_ms, CONNECT_RETRY_MS_MAX)
        return retry_ms

    def drop(self) -> None:
        self.protocol = None
        channel, self.channel = self.channel, None
        if channel is not None:
            channel.close()
