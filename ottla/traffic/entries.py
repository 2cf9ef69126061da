"""The file of recorded traffic: a header, then entries, each with a length and a CRC. docs/TRAFFIC.md documents the bytes.

A recording may end anywhere, because its process was killed or its disk was full: an entry that is cut off is the end of the
file, and no error. Damaged bytes are an error. This module has no I/O: it takes and returns bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from ottla.client.failures import Failure, Kind
from ottla.protocol.records.batch import crc32c

#: As in PNG, a byte above 127 and a line end show whether a transfer has changed the file as if it were text.
MAGIC = b"\x89OTTLA\r\n"
VERSION = 1
#: A frame of Kafka is below 2^31 bytes, and a broker's socket.request.max.bytes is 100 MiB: with a larger length the file is
#: damaged.
ENTRY_BYTES_MAX = 2**30
#: The bytes of an entry were changed before they were written; `masking.py` has the rules.
MASKED = 1
#: The body of the message was left out, because it may have a secret and could not be read.
CUT = 2

_HEADER = Struct(">8sHHq")
_CRC = Struct(">I")
_START = Struct(">II")
_ENTRY = Struct(">BBIqhhi")


class EntryKind(IntEnum):
    """The kind of an entry."""

    REQUEST = 1
    RESPONSE = 2
    OPENED = 3
    CLOSED = 4
    LOST = 5


class Entry(NamedTuple):
    """One entry.

    `time_us` counts from the time in the header; API, version and correlation id are 0 if there is no message. `frame` is the
    message with its header and without its length. For OPENED it is the text of `Opened`, for LOST the number of frames.
    """

    kind: EntryKind
    connection: int
    time_us: int
    api_key: int = 0
    version: int = 0
    correlation_id: int = 0
    frame: bytes | memoryview = b""
    flags: int = 0

    @property
    def is_masked(self) -> bool:
        return bool(self.flags & MASKED)

    @property
    def is_cut(self) -> bool:
        return bool(self.flags & CUT)


class Opened(NamedTuple):
    """The two ends of a connection: addresses as text, and the broker's node id, or -1 if it is not known."""

    client: str
    broker: str
    node_id: int = -1

    def encode(self) -> bytes:
        return f"{self.client}\n{self.broker}\n{self.node_id}".encode()


def read_opened(frame: bytes | memoryview) -> Opened:
    """Return the ends of a connection. For a text in another form they are empty."""
    match str(frame, "utf-8", "replace").split("\n"):
        case [client, broker, node] if node.removeprefix("-").isdecimal() and len(node) < 12:
            return Opened(client, broker, int(node))
    return Opened("?", "?")


class TrafficFileError(Failure):
    """A file is no recording of traffic, or is damaged. The message has the position in the file."""


def encode_header(begun_ms: int) -> bytes:
    """Return the first bytes of a file. `begun_ms` is the wall-clock time from which the entries' times count."""
    fixed = _HEADER.pack(MAGIC, VERSION, 0, begun_ms)
    return fixed + _CRC.pack(crc32c(fixed))


def encode_entry(entry: Entry) -> bytes:
    """Return the bytes of an entry."""
    fixed = _ENTRY.pack(
        entry.kind,
        entry.flags,
        entry.connection,
        entry.time_us,
        entry.api_key,
        entry.version,
        entry.correlation_id,
    )
    body = fixed + entry.frame
    return _START.pack(len(body), crc32c(body)) + body


class EntryReader:
    """The entries of a file, in their order. `read(n)` returns up to n bytes, and fewer only at the end."""

    def __init__(self, read: Callable[[int], bytes], name: str) -> None:
        """Read the header.

        Raises:
            TrafficFileError: the file has another format, or a newer version.
        """
        self._read = read
        self._name = name
        self._at = _HEADER.size + _CRC.size
        #: The position of the entry in which the file ends; None: it ends after a complete entry, or has not been read to its
        #: end.
        self.torn_at: int | None = None
        head = read(self._at)
        if not head.startswith(MAGIC):
            what = "is empty" if not head else "is no recording of `ottla record`"
            raise TrafficFileError(f"{name} {what}", "`ottla record` makes one; a pcap is recognised too", Kind.WRONG)
        if len(head) < self._at:
            raise TrafficFileError(f"{name} ends in its header", None, Kind.WRONG)
        _, version, _, self.begun_ms = _HEADER.unpack_from(head)
        if crc32c(head[: _HEADER.size]) != _CRC.unpack_from(head, _HEADER.size)[0]:
            raise TrafficFileError(f"{name} is damaged: the checksum of its header does not match")
        if version != VERSION:
            remedy = "a newer Ottla has written it" if version > VERSION else None
            raise TrafficFileError(f"{name} has version {version}, and this Ottla reads {VERSION}", remedy, Kind.WRONG)

    def __iter__(self) -> Iterator[Entry]:
        """Yield the complete entries.

        Raises:
            TrafficFileError: an entry is damaged. Those before it have been yielded.
        """
        while start := self._read(_START.size):
            if len(start) < _START.size:
                self.torn_at = self._at
                return
            length, crc = _START.unpack(start)
            if not _ENTRY.size <= length <= ENTRY_BYTES_MAX:
                raise self._damaged(f"an entry of {length} bytes")
            body = self._read(length)
            if len(body) < length:
                self.torn_at = self._at
                return
            if crc32c(body) != crc:
                raise self._damaged("its checksum does not match")
            kind, flags, connection, time_us, api_key, version, correlation_id = _ENTRY.unpack_from(body)
            if kind in _KINDS:  # older readers may skip entries of other kinds
                frame = memoryview(body)[_ENTRY.size :]
                yield Entry(_KINDS[kind], connection, time_us, api_key, version, correlation_id, frame, flags)
            self._at += _START.size + length

    def _damaged(self, why: str) -> TrafficFileError:
        return TrafficFileError(f"{self._name} is damaged at byte {self._at}: {why}", "the entries before it were read")


_KINDS = {int(kind): kind for kind in EntryKind}
