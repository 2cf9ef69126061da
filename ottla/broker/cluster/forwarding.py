"""A request that the active controller decides is sent there in an envelope with the client's principal and address (KIP-590).

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

import ipaddress
import logging
from collections.abc import Mapping
from typing import Any, Protocol

from ottla.broker.cluster.controller_channel import REQUEST_TIMEOUT_MS, ControllerChannel
from ottla.protocol.api import APIS, ApiKey
from ottla.protocol.compile import decode, encode, encoder
from ottla.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from ottla.protocol.headers import decode_response_header, encode_request_header, response_header_version
from ottla.protocol.internal_topics.control_messages import DefaultPrincipalData
from ottla.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.server.network.context import Peer, RequestContext

log = logging.getLogger(__name__)

#: KafkaPrincipalSerde writes two bytes of version before the message.
PRINCIPAL_VERSION = 0
#: In a request's header, after API key and version.
CORRELATION_ID = slice(4, 8)


async def forward(controller: ControllerChannel, frame: bytes, context: RequestContext) -> memoryview:
    """Return the body of the response. The routes bind `controller`."""
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
    controller: Requests, key: ApiKey, message: object, context: RequestContext, timeout_ms: int
) -> Any:
    """Sends a request of this broker in a client's name: the controller authorizes, counts and logs it as the client's.

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


class Requests(Protocol):
    """The part of a channel to the controller that forwarding needs."""

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]: ...
    async def request(self, request: Any, timeout_ms: int = REQUEST_TIMEOUT_MS) -> Any: ...


def _envelope(frame: bytes, client: Peer) -> EnvelopeRequest:
    return EnvelopeRequest(
        request_data=frame,
        request_principal=_principal_bytes(client),
        client_host_address=_host_bytes(client.peer_host),
    )


def _body(data: bytes, frame: bytes, context: RequestContext) -> int:
    """Return the position where the body of the response begins."""
    flexible = response_header_version(context.api_key, context.api_version) == 1
    correlation_id, position = decode_response_header(data, 0, len(data), flexible)
    if correlation_id != int.from_bytes(frame[CORRELATION_ID], "big", signed=True):
        raise MalformedMessage(f"correlation id {correlation_id} is not the request's")
    return position


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
