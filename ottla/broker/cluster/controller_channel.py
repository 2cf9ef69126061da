"""A broker's channel to the active controller, which it finds through the quorum: one connection, with retries at a new controller.

    await channel.request(obj)    the broker's own requests (registration, heartbeats, AlterPartition, ...), and clients'
                                  requests in the envelopes of forwarding.py

A combined node uses it, too, over loopback to its own listener. A request whose connection breaks is sent again to the next
active controller: it may have taken effect already, as in Kafka. Kafka repeats every request until its time is over. Here a request
that a client wants is given up when the second connection breaks under it, because it may be the reason: it must not end one
controller after the other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.messages.envelope import EnvelopeRequest
from ottla.server.network.channel_protocol import ChannelClosed, RequestLost
from ottla.server.network.client import Channel
from ottla.server.network.peer_security import PLAINTEXT, PeerSecurity
from ottla.server.world import World

log = logging.getLogger(__name__)

#: Kafka's request.timeout.ms of brokers: the time for which a request is retried without a controller.
REQUEST_TIMEOUT_MS = 30_000
#: The first delay between two attempts, doubled each time: a new controller is usually elected within a second.
RETRY_MS_MIN = 5
RETRY_MS_MAX = 200

#: What a broker sends because a client wants it. Its own requests may be repeated without end: they mean the same twice.
OF_CLIENTS = (EnvelopeRequest, CreateTopicsRequest)
LOSSES_MAX = 2

NOT_CONTROLLER = int(ErrorCode.NOT_CONTROLLER)


class ControllerAddress(NamedTuple):
    node_id: int
    host: str
    port: int


class ControllerChannel:
    def __init__(
        self,
        world: World,
        node_id: int,
        locate: Callable[[], ControllerAddress | None],
        security: PeerSecurity = PLAINTEXT,
    ) -> None:
        """Takes `locate`, which returns the quorum's leader as known to this node, or None."""
        self._world = world
        self._client_id = f"broker-{node_id}"
        self._locate = locate
        self._security = security
        self._channel: Channel | None = None
        self._waiting: dict[asyncio.Event, None] = {}  # in order, so that simulations are reproducible
        #: Called when another node leads the quorum.
        self.on_leader_change: Callable[[], None] = lambda: None
        self._closed = False

    def leader_changed(self, leader_id: int, epoch: int) -> None:
        """Handles a leader change of the quorum: requests that wait for a controller are sent at once.

        So are requests that were sent to the former one: it may be unreachable and never respond, while the new one fences
        every broker without a heartbeat in time.
        """
        if not self._closed:
            self._to_controller()
        for waiting in self._waiting:
            waiting.set()
        if leader_id >= 0:
            self.on_leader_change()

    def close(self) -> None:
        self._closed = True
        self.leader_changed(-1, -1)
        if self._channel is not None:
            self._channel.close()

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        """Returns the lowest and highest version of each API of the controller; empty if unknown."""
        return {} if self._channel is None else self._channel.known_versions

    async def request(self, request: Any, timeout_ms: int = REQUEST_TIMEOUT_MS) -> Any:
        """Returns the active controller's response; raises KafkaError(REQUEST_TIMED_OUT) if there is none in time, or it is given up."""
        deadline_ms = self._world.clock.mono_ms() + timeout_ms
        retry_ms, losses = RETRY_MS_MIN, 0
        while True:
            left_ms = deadline_ms - self._world.clock.mono_ms()
            if left_ms <= 0 or self._closed:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no controller answered in time")
            channel = self._to_controller()
            if channel is not None:
                try:
                    response = await channel.request(request, timeout_ms=left_ms)
                except ChannelClosed as error:
                    log.debug("Controller at %s: %s", channel.where, error)
                    losses += type(error) is RequestLost
                    if losses == LOSSES_MAX and isinstance(request, OF_CLIENTS):
                        raise KafkaError(
                            ErrorCode.REQUEST_TIMED_OUT, f"{losses} connections to controllers broke under the request"
                        ) from None
                else:
                    if not says_not_controller(response):
                        return response
                    log.debug("The node at %s is not the active controller", channel.where)
            await self._wait(min(retry_ms, max(0, deadline_ms - self._world.clock.mono_ms())))
            retry_ms = min(2 * retry_ms, RETRY_MS_MAX)

    def _to_controller(self) -> Channel | None:
        address = self._locate()
        if address is None:
            return None
        channel = self._channel
        if channel is None or (channel.host, channel.port) != (address.host, address.port):
            if channel is not None:
                channel.close()
            channel = self._channel = Channel(self._world, address.host, address.port, self._client_id, self._security)
        return channel

    async def _wait(self, delay_ms: int) -> None:
        """Waits for the delay, or until the quorum's leader changes."""
        news = asyncio.Event()
        timer = self._world.clock.call_later(delay_ms, news.set)
        self._waiting[news] = None
        try:
            await news.wait()
        finally:
            self._waiting.pop(news, None)
            timer.cancel()


def says_not_controller(response: Any) -> bool:
    """A broker's own requests are answered with an error code at the top; only CreateTopics repeats it in each topic."""
    if isinstance(response, CreateTopicsResponse):
        return any(topic.error_code == NOT_CONTROLLER for topic in response.topics)
    return bool(response.error_code == NOT_CONTROLLER)
