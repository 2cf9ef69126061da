"""The client's side of a connection without I/O: requests become bytes, frames become responses, and versions are agreed on.

    `ChannelProtocol`       its loop in nodes and commands: asyncio, where a response calls back
    `BlockingConnection`    its loop in Spark's processes and in tests: a blocking socket (ottla/client/blocking.py)

A loop itself receives frames, because it reads them straight into the memory that the response keeps. A procedure with several
requests, such as a login, is a generator (`Steps`), which every loop carries out in its own way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from ottla.protocol.api import APIS, Api, ApiKey, decode_response_header, encode_request_header, response_header_version
from ottla.protocol.compile import decoder, encoder
from ottla.protocol.errors import ErrorCode, KafkaError, ProtocolError
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.primitives import Buffer, Pieces
from ottla.protocol.schema import info_of

T = TypeVar("T")

#: The version of the first ApiVersions request. An older peer answers with UNSUPPORTED_VERSION in v0.
API_VERSIONS_VERSION = 3
#: After this part of a SASL session a client logs in on a new connection. Java clients use 0.85 to 0.95.
RENEWED_AFTER = 0.85
#: A peer that announces a larger frame is no broker: the limits in Fetch requests keep responses far below this.
RESPONSE_BYTES_MAX = 2**30
#: A request may have any version that both sides support.
ANY_VERSION = 0x7FFF
_UNSUPPORTED_VERSION = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")


class ChannelClosed(ConnectionError):
    """The peer could not be reached, or the connection was lost before the response came."""


class Unreachable(ChannelClosed):
    """The peer does not respond, and its host does not even refuse the connection."""


class RequestLost(ChannelClosed):
    """The connection was lost after the request had been sent: the peer may have carried it out, or the request may have ended
    the peer.
    """


class HandshakeLost(ChannelClosed):
    """The peer closed the connection before it could be used, at ApiVersions or in the login: no request had been sent."""


class AnotherProtocol(ChannelClosed):
    """The peer does not speak Kafka's protocol."""


class SecurityRejected(ChannelClosed):
    """One side did not accept the other's TLS or login."""


class RequestTimeout(ChannelClosed):
    """The response did not come in time. Responses come in order, so the connection was closed, too."""


class UnreadableResponse(ChannelClosed):
    """The peer's answer is no response to the request, or the peer does not list its versions."""


class Ask(NamedTuple):
    """A step that sends a request. It continues with the response."""

    request: object
    version: int


class Work(NamedTuple):
    """A step that computes for milliseconds. It continues with the result. A loop that must not wait so long uses a worker."""

    run: Callable[[bytes], bytes | None]
    argument: bytes


#: Steps that end with a result. They raise an error that makes the connection useless.
Steps: TypeAlias = Generator[Ask | Work, Any, T]


class SentRequest(NamedTuple, Generic[T]):
    """A request that has been sent. `waiter` belongs to the loop: it is the receiver of the response."""

    api: Api
    version: int
    correlation_id: int
    waiter: T


class ClientWire(Generic[T]):
    """The client's state of one connection: the peer's versions, and the requests in flight, the oldest first."""

    __slots__ = ("_last_correlation_id", "in_flight", "versions", "where")

    def __init__(self, where: str) -> None:
        """Begin without any knowledge of the peer except its address, for messages."""
        self.where = where
        #: The lowest and the highest version by API key; empty before `agree_on_versions`.
        self.versions: dict[int, tuple[int, int]] = {}
        self.in_flight: deque[SentRequest[T]] = deque()
        self._last_correlation_id = 0

    def agreed(self, api: Api, version: int | None = None, version_max: int = ANY_VERSION) -> int:
        """Return `version`. None means the highest version up to `version_max` that both sides have.

        Raises:
            KafkaError: UNSUPPORTED_VERSION, one side does not have it.
        """
        low, high = self.versions.get(api.key, (0, -1))
        low, high = max(low, api.min_version), min(high, api.max_version)
        if version is None:
            version = min(high, version_max)
        if not low <= version <= high:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{self.where} serves {api.name} in versions {low} to {high}, not {version}",
            )
        return version

    def sent(self, api: Api, version: int, waiter: T) -> int:
        """Count a request as in flight. Return its correlation id."""
        self._last_correlation_id = correlation_id = self._last_correlation_id + 1 & 0x7FFF_FFFF
        self.in_flight.append(tuple.__new__(SentRequest, (api, version, correlation_id, waiter)))
        return correlation_id

    def request(self, client_id: str | None, request: object, api: Api, version: int, waiter: T) -> Pieces:
        """Return the bytes of a request in pieces, its length first, and count it as in flight.

        Raises:
            UnsupportedVersion: the version cannot hold the request. It does not count as in flight.
        """
        pieces: Pieces = [b"", b""]
        encoder(api.request, version)(request, pieces)
        pieces[1] = encode_request_header(api.key, version, self.sent(api, version, waiter), client_id)
        pieces[0] = sum(map(len, pieces)).to_bytes(4, "big")
        return pieces

    def answered(self) -> SentRequest[T]:
        """Take the oldest request, whose response has come, out of those in flight.

        Raises:
            ChannelClosed: no request is in flight.
        """
        if not self.in_flight:
            raise ChannelClosed(f"{self.where} answered something that was not asked")
        return self.in_flight.popleft()

    def response(self, sent: SentRequest[T], frame: Buffer, pos: int, end: int) -> Any:
        """Return the response in a frame. It keeps the frame's memory for its records.

        Raises:
            UnreadableResponse: the frame is no response to this request.
        """
        try:
            return read_response(sent.api, sent.version, sent.correlation_id, frame, pos, end)
        except ProtocolError as error:
            raise UnreadableResponse(
                f"{self.where} answered {sent.api.name} v{sent.version} with what cannot be read: {error}"
            ) from None

    def another_protocol(self, first_bytes: bytes, size: int) -> AnotherProtocol:
        """Return the failure for a peer that announces a frame of this size, which no response has."""
        return AnotherProtocol(f"{self.where} {describe_foreign_response(first_bytes, size)}")


def agree_on_versions(wire: ClientWire[T], software_name: str, software_version: str) -> Steps[None]:
    """Learn the peer's versions (KIP-35, KIP-511).

    Raises:
        UnreadableResponse: the peer does not list them.
    """
    request = ApiVersionsRequest(client_software_name=software_name, client_software_version=software_version)
    response: ApiVersionsResponse = yield Ask(request, API_VERSIONS_VERSION)
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
        response = yield Ask(request, 0)
    if response.error_code != ErrorCode.NONE:
        raise UnreadableResponse(f"{wire.where} refused ApiVersions with {ErrorCode(response.error_code).name}")
    wire.versions = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}


def api_of(request: object) -> Api:
    """Return the API of a request object."""
    key = info_of(type(request)).key
    assert key is not None, f"{request!r} is not a request"
    return APIS[ApiKey(key)]


def read_response(api: Api, version: int, correlation_id: int, frame: Buffer, pos: int, end: int) -> Any:
    """Return the response in a frame to the request with this correlation id. Raises ProtocolError."""
    flexible = response_header_version(api.key, version) == 1
    got, pos = decode_response_header(frame, pos, end, flexible)
    if got != correlation_id:
        raise ProtocolError(f"correlation id {got} where {correlation_id} is due")
    if api.key == ApiKey.API_VERSIONS and frame[pos : pos + 2] == _UNSUPPORTED_VERSION:
        version = 0
    return decoder(api.response, version)(frame, pos, end)[0]


def describe_foreign_response(first_bytes: bytes, size: int) -> str:
    """Return a sentence about a peer whose frame is larger than any response: web servers and proxies answer Kafka's requests
    with HTTP.
    """
    if first_bytes.startswith(b"HTTP"):
        return "answered with HTTP, so it is no Kafka listener"
    return f"sent a frame of {size} bytes: is it a Kafka listener?"
