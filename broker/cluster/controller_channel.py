"""A broker's way to the active controller: found through the quorum, one connection, asked again wherever it has moved to.

    await channel.request(obj)                 the broker's own requests: registration, heartbeats, AlterPartition, ...
    await channel.forward(context, request)    a client's request, in an envelope that says who the client is (KIP-590)

A combined node goes the same way, over loopback to its own listener. A request whose connection breaks is sent again to
whoever is the controller then: it may have taken effect already, as with Kafka.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from ottla.protocol.api import APIS, ApiKey
from ottla.protocol.compile import encoder
from ottla.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from ottla.protocol.headers import encode_request_header
from ottla.protocol.internal_topics.control_messages import DefaultPrincipalData
from ottla.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.server.network.client import Channel, ChannelClosed, read_response
from ottla.server.network.context import Peer, RequestContext
from ottla.server.world import World

log = logging.getLogger(__name__)

#: Kafka's request.timeout.ms of brokers: how long a request looks for a controller before it gives up.
REQUEST_TIMEOUT_MS = 30_000
#: Between two attempts, doubled each time: a new controller is usually there within a second.
RETRY_MS_MIN = 5
RETRY_MS_MAX = 200
PRINCIPAL_VERSION = 0

NOT_CONTROLLER = int(ErrorCode.NOT_CONTROLLER)


class ControllerAddress(NamedTuple):
    node_id: int
    host: str
    port: int


class ControllerChannel:
    def __init__(self, world: World, node_id: int, locate: Callable[[], ControllerAddress | None]) -> None:
        """`locate` says who leads the quorum as far as this node knows, None while nobody does."""
        self._world = world
        self._client_id = f"broker-{node_id}"
        self._locate = locate
        self._channel: Channel | None = None
        self._waiting: dict[asyncio.Event, None] = {}  # in order, so that a simulated run can be repeated
        #: Told when another node leads the quorum.
        self.on_leader_change: Callable[[], None] = lambda: None
        self._closed = False

    def leader_changed(self, leader_id: int, epoch: int) -> None:
        """The quorum has news: those who wait for a controller look again at once.

        So do those whose requests went to the former one: it may be behind a cut cable and never answer, while the new
        one fences every broker that it does not hear of in time.
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

    async def request(self, request: Any, timeout_ms: int = REQUEST_TIMEOUT_MS) -> Any:
        """The active controller's answer; KafkaError(REQUEST_TIMED_OUT) if none could be had in time."""
        deadline_ms = self._world.clock.mono_ms() + timeout_ms
        retry_ms = RETRY_MS_MIN
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
                else:
                    if not says_not_controller(response):
                        return response
                    log.debug("The node at %s is not the active controller", channel.where)
            await self._wait(min(retry_ms, max(0, deadline_ms - self._world.clock.mono_ms())))
            retry_ms = min(2 * retry_ms, RETRY_MS_MAX)

    async def forward(self, context: RequestContext, request: Any) -> Any:
        """The controller's answer to a client's request, decided for that client."""
        envelope = EnvelopeRequest(
            request_data=_request_bytes(context, request),
            request_principal=_principal_bytes(context.connection),
            client_host_address=_host_bytes(context.connection.peer_host),
        )
        answer: EnvelopeResponse = await self.request(envelope)
        if answer.error_code != ErrorCode.NONE:
            code = ErrorCode(answer.error_code)
            # What is wrong with the envelope is between broker and controller: the client did nothing wrong.
            if code in (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE):
                log.error("The controller refused a forwarded request: %s", code.name)
                code = ErrorCode.UNKNOWN_SERVER_ERROR
            raise KafkaError(code)
        data = answer.response_data
        if data is None:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        api = APIS[ApiKey(context.api_key)]
        try:
            return read_response(api, context.api_version, CORRELATION_ID, data, 0, len(data))
        except MalformedMessage as error:
            log.error("The controller's answer to %s cannot be read: %s", api.name, error)
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR) from None

    def forwarder(self, api_key: int) -> Callable[[Any, RequestContext], Awaitable[Any]]:
        """A handler that passes the API's requests on."""

        async def forward_to_controller(request: Any, context: RequestContext) -> Any:
            assert context.api_key == api_key
            return await self.forward(context, request)

        return forward_to_controller

    def _to_controller(self) -> Channel | None:
        address = self._locate()
        if address is None:
            return None
        channel = self._channel
        if channel is None or (channel.host, channel.port) != (address.host, address.port):
            if channel is not None:
                channel.close()
            channel = self._channel = Channel(self._world, address.host, address.port, self._client_id)
        return channel

    async def _wait(self, delay_ms: int) -> None:
        """Until there is news of the leader, or the time is up."""
        news = asyncio.Event()
        timer = self._world.clock.call_later(delay_ms, news.set)
        self._waiting[news] = None
        try:
            await news.wait()
        finally:
            self._waiting.pop(news, None)
            timer.cancel()


CORRELATION_ID = 1  # of the one request in an envelope


def says_not_controller(response: Any) -> bool:
    """Responses say it at the top, or, where they have no error code there, in every result."""
    if getattr(response, "error_code", 0) == NOT_CONTROLLER:
        return True
    for name in response.__field_names__:
        values = getattr(response, name)
        if isinstance(values, list) and values and getattr(values[0], "error_code", 0) == NOT_CONTROLLER:
            return True
    return False


def _request_bytes(context: RequestContext, request: Any) -> bytes:
    api = APIS[ApiKey(context.api_key)]
    pieces: list[Any] = [encode_request_header(api.key, context.api_version, CORRELATION_ID, context.client_id)]
    encoder(api.request, context.api_version)(request, pieces)
    return b"".join(pieces)


def _principal_bytes(peer: Peer) -> bytes:
    principal = peer.principal
    pieces: list[Any] = [PRINCIPAL_VERSION.to_bytes(2, "big")]
    data = DefaultPrincipalData(
        type=principal.type, name=principal.name, token_authenticated=principal.token_authenticated
    )
    encoder(DefaultPrincipalData, PRINCIPAL_VERSION)(data, pieces)
    return b"".join(pieces)


def _host_bytes(host: str) -> bytes:
    try:
        return ipaddress.ip_address(host).packed
    except ValueError:
        return ipaddress.IPv4Address("0.0.0.0").packed  # a peer without an address, as in the simulator
