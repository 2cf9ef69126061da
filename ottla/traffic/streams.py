"""TCP streams become entries: segments in order, the frames of Kafka's protocol in them, and gaps where the capture has lost
bytes.

A connection is one between a client and a broker. The client is the side that sends the first packet of the handshake; if the
capture begins later, it is the side that is not at a broker's port. After a gap the positions of frames are not known any more,
so that direction of the connection ends there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ottla.protocol.api import ApiKey
from ottla.server.network.frames import read_size
from ottla.traffic.capture import TcpSegment
from ottla.traffic.entries import Entry, EntryKind, Opened
from ottla.traffic.messages import CORRELATION_ID, REQUEST_START, api_of_key
from ottla.traffic.relay import FRAME_BYTES_MAX

#: The most bytes of segments that came before earlier ones. Beyond that, the missing ones count as lost.
AHEAD_BYTES_MAX = 1024 * 1024
#: The most requests of one connection that wait for their responses.
UNANSWERED_MAX = 100_000
KAFKA_PORT = 9092
_WRAP = 1 << 32


class _Direction:
    """One direction of a connection."""

    def __init__(self) -> None:
        self.next: int | None = None
        self.ahead: dict[int, TcpSegment] = {}
        self.bytes = bytearray()
        self.is_over = False

    def take(self, segment: TcpSegment) -> str | None:
        """Take a segment. Return the reason if the stream cannot go on."""
        if self.is_over:
            return None
        sequence = (segment.sequence + segment.begins) % _WRAP
        if self.next is None:
            self.next = sequence
        if segment.data or segment.missing:
            self.ahead[sequence] = segment
        while self.ahead:
            # A segment that was sent again comes first, and may be longer than before.
            at = next((each for each in self.ahead if (self.next - each) % _WRAP < _WRAP // 2), None)
            if at is None:
                break
            found = self.ahead.pop(at)
            new = found.data[(self.next - at) % _WRAP :]
            self.bytes += new
            self.next = (self.next + len(new)) % _WRAP
            if found.missing and new:
                return self._end("the capture has cut a packet short (`tcpdump -s 0` keeps all of it)")
        if sum(len(each.data) for each in self.ahead.values()) > AHEAD_BYTES_MAX or (self.ahead and segment.ends):
            return self._end("the capture has lost packets")
        return None

    def frames(self) -> Iterator[bytes]:
        """Yield the complete frames."""
        pos = 0
        while len(self.bytes) - pos >= 4 and not self.is_over:
            (size,) = read_size(self.bytes, pos)
            if not 0 <= size <= FRAME_BYTES_MAX:
                self._end("")
                return
            if len(self.bytes) - pos - 4 < size:
                break
            yield bytes(self.bytes[pos + 4 : pos + 4 + size])
            pos += 4 + size
        del self.bytes[:pos]

    def _end(self, why: str) -> str:
        self.is_over = True
        self.ahead.clear()
        self.bytes.clear()
        return why


class _Stream:
    """A connection."""

    def __init__(self, number: int, client: str, broker: str) -> None:
        self.number = number
        self.client = client
        self.broker = broker
        self.there = _Direction()
        self.back = _Direction()
        self.asked: dict[int, tuple[int, int]] = {}
        self._may_have_tokens = False

    def entry(self, frame: bytes, time_us: int, *, is_request: bool) -> Entry | None:
        """Return the entry of a frame, or None for a response to a request that was not seen."""
        if is_request:
            if len(frame) < REQUEST_START.size:
                return None
            api_key, version, correlation_id = REQUEST_START.unpack_from(frame)
            if self._may_have_tokens and api_of_key(api_key, version) is None:
                return None  # a token of a login, which has no header
            self._may_have_tokens = api_key == ApiKey.SASL_HANDSHAKE and version == 0
            if len(self.asked) >= UNANSWERED_MAX:
                del self.asked[next(iter(self.asked))]
            self.asked[correlation_id] = api_key, version
            return Entry(EntryKind.REQUEST, self.number, time_us, api_key, version, correlation_id, frame)
        if len(frame) < CORRELATION_ID.size:
            return None
        (correlation_id,) = CORRELATION_ID.unpack_from(frame)
        known = self.asked.pop(correlation_id, None)
        return None if known is None else Entry(EntryKind.RESPONSE, self.number, time_us, *known, correlation_id, frame)


def entries_of(segments: Iterable[TcpSegment], note: Callable[[str], object]) -> Iterator[Entry]:
    """Yield the entries of a capture, with times since the epoch. `note` is called for each gap."""
    streams: dict[tuple[str, str], _Stream] = {}
    count = 0
    for segment in segments:
        ends = segment.source, segment.target
        stream = streams.get(ends) or streams.get(ends[::-1])
        if stream is None or (segment.begins and not segment.acknowledges and stream.there.next is not None):
            count += 1
            client, broker = ends if _is_of_client(segment) else ends[::-1]
            streams.pop((client, broker), None)
            stream = streams[client, broker] = _Stream(count, client, broker)
            yield Entry(EntryKind.OPENED, count, segment.time_us, frame=Opened(client, broker).encode())
        is_request = segment.source == stream.client
        direction = stream.there if is_request else stream.back
        lost = direction.take(segment)
        for frame in direction.frames():
            entry = stream.entry(frame, segment.time_us, is_request=is_request)
            if entry is not None:
                yield entry
        if lost:
            note(
                f"connection {stream.number}, {'requests' if is_request else 'responses'}: {lost}; the rest is left out"
            )


def _is_of_client(segment: TcpSegment) -> bool:
    """Return whether the client has sent a segment, by its ports."""
    if segment.begins:
        return not segment.acknowledges
    source, target = (int(end.rpartition(":")[2]) for end in (segment.source, segment.target))
    return target == KAFKA_PORT or (source != KAFKA_PORT and target < source)
