"""The bytes that clients and peers send: streams, frames, headers, every API in every version, messages inside of messages."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterator
from functools import cache
from random import Random
from typing import Any

from ottla.broker.groups.classic.classic_group import subscription_topics
from ottla.protocol.api import (
    APIS,
    ApiKey,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    response_header_version,
)
from ottla.protocol.compile import decode, decoder, encode
from ottla.protocol.errors import ErrorCode, KafkaError, ProtocolError
from ottla.protocol.internal_topics import control_messages as control
from ottla.protocol.schema import info_of
from ottla.server.clock import TimerWheel
from ottla.server.config.listeners import Endpoint
from ottla.server.network.connection import Connection
from ottla.server.network.dispatch import Dispatcher
from ottla.server.network.error_reply import error_reply
from ottla.server.network.frames import FrameProtocol, ReceiveBuffer
from ottla.server.network.limits import ConnectionLimits
from ottla.server.network.listener import Listener
from ottla.server.network.route import Route, RouteTable
from tests.fuzz.target import Target, Wrong, equal
from tests.protocol.catalog import golden

CORRELATION_ID = 7
LIMITS = ConnectionLimits(request_bytes_max=100_000)
INBOX = ReceiveBuffer()
READS_MAX = 50


def again(cls: type[Any], version: int, obj: Any) -> None:
    """Encode a decoded object, and check that decoding gives the same bytes again."""
    written = encode(obj, version)
    equal(encode(decode(cls, written, version), version), written, f"{cls.__name__} v{version} read again")


# Requests and responses


def request(data: bytes) -> None:
    """Read header and body as in a frame; then write the error response that every request can get."""
    api_key, version, correlation_id, client_id, pos = decode_request_header(data, 0, len(data))
    api = APIS.get(api_key)
    if api is None:
        return
    body, _ = decoder(api.request, version)(data, pos, len(data))
    written = encode_request_header(api_key, version, correlation_id, client_id)
    equal(decode_request_header(written, 0, len(written))[:4], (api_key, version, correlation_id, client_id), "header")
    _holds(again, api.request, version, body)
    _holds(_refuse, api_key, version, body)


def _refuse(api_key: int, version: int, body: Any) -> None:
    answer = error_reply(api_key, version, body, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "no"))
    if answer is not None:
        again(APIS[ApiKey(api_key)].response, version, answer)


def _holds(check: Callable[..., None], *arguments: Any) -> None:
    """Check that a decoded object can be written: an error of the protocol is no valid rejection here."""
    try:
        check(*arguments)
    except ProtocolError as error:
        raise Wrong(f"{check.__name__}: {error}") from error


def response(data: bytes) -> None:
    """Read a frame of a response. The first bytes say API key and version, which the client knows."""
    if len(data) < 4:
        return
    api_key, version = struct.unpack_from(">hh", data)
    api = APIS.get(api_key)
    if api is None or version not in info_of(api.response).versions:
        return
    _, pos = decode_response_header(data, 4, len(data), response_header_version(api_key, version) == 1)
    body, _ = decoder(api.response, version)(data, pos, len(data))
    _holds(again, api.response, version, body)


@cache
def _apis_by_class() -> dict[type[Any], int]:
    return {cls: int(api.key) for api in APIS.values() for cls in (api.request, api.response)}


def request_seeds() -> Iterator[bytes]:
    for case in golden():
        key = _apis_by_class().get(case.cls)
        if key is not None and APIS[ApiKey(key)].request is case.cls:
            yield encode_request_header(key, case.version, CORRELATION_ID, "rdkafka") + case.data


def response_seeds() -> Iterator[bytes]:
    for case in golden():
        key = _apis_by_class().get(case.cls)
        if key is not None and APIS[ApiKey(key)].response is case.cls:
            header = CORRELATION_ID.to_bytes(4, "big") + bytes(response_header_version(key, case.version))
            yield struct.pack(">hh", key, case.version) + header + case.data


# Streams


class Collecting(FrameProtocol):
    """The receive path alone, as `Connection.serve` uses it."""

    def __init__(self) -> None:
        super().__init__(INBOX)
        self.frames: list[bytes] = []
        self.refused = False

    def serve(self, buf: bytearray | bytes, pos: int, end: int) -> int:
        while end - pos >= 4 and not self.refused:
            size = int.from_bytes(buf[pos : pos + 4], "big", signed=True)
            if not 0 <= size <= LIMITS.request_bytes_max:
                self.refused = True
                return end
            if pos + 4 + size > end:
                break
            self.frames.append(bytes(buf[pos + 4 : pos + 4 + size]))
            pos += 4 + size
        return end if self.refused else pos


def frames(data: bytes) -> None:
    """The frames of a stream are those that the plain reader finds, for any split of the stream into reads."""
    if not data:
        return
    protocol = Collecting()
    stream = data[1:] if data[0] & 1 else _stretched(data[1:])
    # The kept part of a frame is copied with each read. The number of reads is limited, because otherwise the copies take all
    # the time.
    deliver(protocol, stream, 1 + (data[0] >> 1) + len(stream) // READS_MAX)
    expected, left = plain_frames(stream)
    refused = left is None
    equal(protocol.frames, expected, "frames")
    equal(protocol.refused, refused, "refusal")
    kept = protocol.received_bytes_kept
    if left is not None and kept < left:
        raise Wrong(f"{kept} bytes are kept of {left}")
    protocol.drop_received()


def plain_frames(stream: bytes) -> tuple[list[bytes], int | None]:
    """Return the frames of a whole stream, and the number of bytes that are left over, or None if a size is rejected."""
    found, pos = [], 0
    while len(stream) - pos >= 4:
        size = int.from_bytes(stream[pos : pos + 4], "big", signed=True)
        if not 0 <= size <= LIMITS.request_bytes_max:
            return found, None
        if len(stream) - pos < 4 + size:
            break
        found.append(stream[pos + 4 : pos + 4 + size])
        pos += 4 + size
    return found, len(stream) - pos


def _stretched(stream: bytes) -> bytes:
    """Return large frames for a short input: each byte stands for 256."""
    pieces = []
    for pos in range(0, len(stream), 8):
        piece = stream[pos : pos + 8]
        pieces.append(piece[:4])
        pieces.append(piece[4:] * 256)
    return b"".join(pieces)


def deliver(protocol: FrameProtocol, stream: bytes, read_bytes: int) -> None:
    pos = 0
    while pos < len(stream):
        buffer = protocol.get_buffer(-1)
        size = min(read_bytes, len(buffer), len(stream) - pos)
        buffer[:size] = stream[pos : pos + size]
        protocol.buffer_updated(size)
        pos += size
        if isinstance(protocol, Connection) and protocol.closed:
            return


class SentBytes(asyncio.Transport):
    """The network's side of a connection, which keeps the written bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 9092)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: Any) -> None:
        self.sent.append(bytes(data))

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


class StoppedClock:
    def wall_ms(self) -> int:
        return 0

    mono_ms = mono_ns = wall_ms

    def call_later(self, delay_ms: int, callback: Any) -> Any:
        """Never call back, because no time passes."""


class OneWorld:
    """The part of a world that a listener needs for one connection."""

    clock = StoppedClock()


def _refusing(request: Any, context: Any) -> Any:
    raise KafkaError(ErrorCode.INVALID_REQUEST, "fuzzed")


#: Half of the APIs are served, the others are only Kafka's: both have their path through the dispatcher.
_WORLD: Any = OneWorld()
_DISPATCHER = Dispatcher(
    RouteTable(Route(api.key, _refusing) for api in APIS.values() if api.key % 2 == 0),
    _WORLD.clock,
    lambda *_: None,
)


def connection(data: bytes) -> None:
    """Send a client's bytes through connection and dispatcher: no exception escapes, and each response is a whole frame."""
    wheel = TimerWheel(_WORLD.clock)
    listener = Listener(_WORLD, Endpoint("EXTERNAL", "localhost", 0), _DISPATCHER, LIMITS, INBOX, wheel)
    client = Connection(listener, _DISPATCHER, 0)
    transport = SentBytes()
    client.connection_made(transport)
    deliver(client, data, 1 << 16)
    client.connection_lost(None)
    _, left = plain_frames(b"".join(transport.sent))
    equal(left, 0, "bytes behind the last answer")


def connection_seeds() -> Iterator[bytes]:
    rng = Random(1)
    for seed in request_seeds():
        if rng.random() < 0.2 and len(seed) < 1000:
            yield struct.pack(">i", len(seed)) + seed


# Messages inside of messages

_EMBEDDED: list[tuple[type[Any], bool]] = [
    (control.ConsumerProtocolSubscription, True),
    (control.ConsumerProtocolAssignment, True),
    (control.DefaultPrincipalData, False),
    (control.AbortedTxn, False),
    (control.EndTxnMarker, False),
]


def embedded(data: bytes) -> None:
    """Read bytes inside of requests, with a version before them: subscriptions, assignments, forwarded principals."""
    if not data:
        return
    cls, newer_too = _EMBEDDED[data[0] % len(_EMBEDDED)]
    obj, version = control.decode_versioned(cls, data[1:], newer_too=newer_too)
    _holds(again, cls, min(version, info_of(cls).versions.high), obj)
    if cls is control.ConsumerProtocolSubscription:
        equal(subscription_topics(data[1:]), obj.topics, "topics of a subscription")


def embedded_seeds() -> Iterator[bytes]:
    places = {cls: place for place, (cls, _) in enumerate(_EMBEDDED)}
    for case in golden():
        if case.cls in places:
            yield bytes((places[case.cls],)) + struct.pack(">h", case.version) + case.data


TARGETS = [
    Target("frames", frames, connection_seeds, bytes_max=600, share=5),
    Target("connection", connection, connection_seeds, bytes_max=1024, share=10),
    Target("request", request, request_seeds, (ProtocolError,), bytes_max=1024, share=30),
    Target("response", response, response_seeds, (ProtocolError,), bytes_max=1024, share=25),
    Target("embedded", embedded, embedded_seeds, (ProtocolError,), bytes_max=512, share=25),
]
