"""A broker's channels: to the other brokers, and to the active controller, which it finds through the quorum.

The controller's is one connection, with retries at a new controller.

    await channel.request(obj)    the broker's own requests (registration, heartbeats, AlterPartition, ...), and clients'
                                  requests in envelopes (`forward`)

A combined node uses it, too, over loopback to its own listener. A request whose connection breaks is sent again to the next
active controller: it may have taken effect already, as in Kafka. Kafka repeats every request until its time is over. Here a request
that a client wants is given up when the second connection breaks under it, because it may be the reason: it must not end one
controller after the other.

A client's request that the active controller decides is sent there in an envelope with the client's principal and address (KIP-590).
The client's bytes are passed on, from the header to the end, and the response's body comes back the same way: neither is
decoded here, so fields that this broker does not know survive. Authorization is the controller's. Whether the request is
to be sent again (NOT_CONTROLLER) is said by the envelope's response alone. Its other errors are between broker and
controller, as with Kafka:

    UNSUPPORTED_VERSION    the client's connection is closed: it connects again and learns the versions of the controller
    any other              UNKNOWN_SERVER_ERROR, in the API's own form; but a request that cannot be decoded here either
                           closes the connection (`Dispatcher`)
    no controller in time  REQUEST_TIMED_OUT, in the API's own form
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ottla.broker.configs import BrokerConfigs
from ottla.broker.metadata_cache import MetadataCache
from ottla.controller.metadata.image import MetadataDelta, MetadataImage
from ottla.protocol.api import APIS, ApiKey, decode_response_header, encode_request_header, response_header_version
from ottla.protocol.compile import decode, encode
from ottla.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from ottla.protocol.internal_topics.control_messages import DefaultPrincipalData
from ottla.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.server.network.client import Channel
from ottla.server.network.context import Peer, RequestContext
from ottla.server.network.peer_security import PLAINTEXT, PeerSecurity
from ottla.server.network.wire import ChannelClosed, RequestLost
from ottla.server.world import World

log = logging.getLogger(__name__)

#: Kafka's request.timeout.ms of brokers: the time for which a request is retried without a controller.
REQUEST_TIMEOUT_MS = 30_000
#: The first delay between two attempts, doubled each time: a new controller is usually elected within a second.
RETRY_MS_MIN = 5
RETRY_MS_MAX = 200

#: Requests that a broker sends because a client wants it. The broker's own requests may be repeated without end, because a
#: repetition changes nothing.
OF_CLIENTS = (EnvelopeRequest, CreateTopicsRequest)
LOSSES_MAX = 2

NOT_CONTROLLER = int(ErrorCode.NOT_CONTROLLER)


class ControllerAddress(NamedTuple):
    node_id: int
    host: str
    port: int


class ControllerChannel:
    """The channel to the active controller."""

    def __init__(
        self,
        world: World,
        node_id: int,
        locate: Callable[[], ControllerAddress | None],
        security: PeerSecurity = PLAINTEXT,
    ) -> None:
        """Take `locate`, which returns the quorum's leader as known to this node, or None."""
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
        """Handle a leader change of the quorum: requests that wait for a controller are sent at once.

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
        """Return the lowest and highest version of each API of the controller; empty if unknown."""
        return {} if self._channel is None else self._channel.known_versions

    async def request(self, request: Any, timeout_ms: int = REQUEST_TIMEOUT_MS) -> Any:
        """Return the active controller's response; raise KafkaError(REQUEST_TIMED_OUT) if there is none in time, or it is given up."""
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
        """Wait for the delay, or until the quorum's leader changes."""
        news = asyncio.Event()
        timer = self._world.clock.call_later(delay_ms, news.set)
        self._waiting[news] = None
        try:
            await news.wait()
        finally:
            self._waiting.pop(news, None)
            timer.cancel()


def says_not_controller(response: Any) -> bool:
    """Return whether the response says NOT_CONTROLLER. The error is at its top, except for CreateTopics, which has it in each
    topic.
    """
    if isinstance(response, CreateTopicsResponse):
        return any(topic.error_code == NOT_CONTROLLER for topic in response.topics)
    return bool(response.error_code == NOT_CONTROLLER)


#: KafkaPrincipalSerde writes two bytes of version before the message.
PRINCIPAL_VERSION = 0
#: The place of the correlation id in a request's header, after API key and version.
CORRELATION_ID = slice(4, 8)


async def forward(controller: ControllerChannel, frame: bytes, context: RequestContext) -> memoryview:
    """Return the body of the response. The table of routes passes `controller`."""
    client = context.connection
    answer: EnvelopeResponse = await controller.request(_envelope(frame, client), timeout_ms=REQUEST_TIMEOUT_MS)
    if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
        client.close(f"the controller does not serve version {context.api_version} of API {context.api_key}")
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if answer.error_code != ErrorCode.NONE:
        log.error(
            "The controller refused a forwarded request of API %d: %s",
            context.api_key,
            ErrorCode(answer.error_code).name,
        )
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    data = answer.response_data or b""
    try:
        return memoryview(data)[_body(data, frame, context) :]
    except MalformedMessage as error:
        log.error("The controller's response to a request of API %d cannot be read: %s", context.api_key, error)
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR) from None


async def request_for(
    controller: ControllerChannel, key: ApiKey, message: object, context: RequestContext, timeout_ms: int
) -> Any:
    """Send a request of this broker in a client's name: the controller authorizes, counts and logs it as the client's.

    Raises:
        KafkaError: the envelope's error, or no controller answered in time.
    """
    api = APIS[key]
    version = min(api.max_version, controller.versions.get(key, (0, api.max_version))[1])
    frame = encode_request_header(key, version, 0, context.client_id) + encode(message, version)
    answer: EnvelopeResponse = await controller.request(_envelope(frame, context.connection), timeout_ms=timeout_ms)
    if answer.error_code != ErrorCode.NONE:
        raise KafkaError(ErrorCode(answer.error_code))
    data = answer.response_data or b""
    position = _body(data, frame, RequestContext(key, version, context.client_id, context.connection))
    return decode(api.response, data[position:], version)


def _envelope(frame: bytes, client: Peer) -> EnvelopeRequest:
    kind, name, is_by_token = client.principal
    principal = DefaultPrincipalData(type=kind, name=name, token_authenticated=is_by_token)
    return EnvelopeRequest(
        request_data=frame,
        request_principal=PRINCIPAL_VERSION.to_bytes(2, "big") + encode(principal, PRINCIPAL_VERSION),
        client_host_address=_host_bytes(client.peer_host),
    )


def _body(data: bytes, frame: bytes, context: RequestContext) -> int:
    """Return the position where the body of the response begins."""
    flexible = response_header_version(context.api_key, context.api_version) == 1
    correlation_id, position = decode_response_header(data, 0, len(data), flexible)
    if correlation_id != int.from_bytes(frame[CORRELATION_ID], "big", signed=True):
        raise MalformedMessage(f"correlation id {correlation_id} is not the request's")
    return position


def _host_bytes(host: str) -> bytes:
    try:
        return ipaddress.ip_address(host).packed
    except ValueError:
        return ipaddress.IPv4Address("0.0.0.0").packed  # a peer without an address, as in the simulator


class BrokerChannels:
    """Channels to the other brokers on the inter-broker listener: one to each broker that gets requests.

    A broker that was fenced or restarted will not respond, so pending requests to it fail when the metadata arrives, before their
    timeout.
    """

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
        """Return the broker's response; KafkaError NETWORK_EXCEPTION when it cannot be asked, or does not answer in time."""
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
