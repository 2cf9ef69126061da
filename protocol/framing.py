"""Cuts a stream of bytes into frames: a four-byte size, then that many bytes. For clients, peers and tests.

(The broker's own connections cut frames inside their receive buffer, without this class's copy.)
"""

from __future__ import annotations

from protocol.errors import ProtocolError

# Kafka's socket.request.max.bytes; larger sizes are mostly other protocols, such as TLS or HTTP on a plain listener.
FRAME_BYTES_MAX = 104_857_600


class FrameTooLarge(ProtocolError):
    """The size is negative or above the limit; the stream is of no more use."""


class FrameReader:
    """`receive_data()` what came in, then take frames with `next_frame()` until it gives None."""

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._buffer = bytearray()
        self._start = 0

    def __len__(self) -> int:
        """Bytes received that no frame has been made of."""
        return len(self._buffer) - self._start

    def receive_data(self, data: bytes | bytearray | memoryview) -> None:
        if self._start:
            del self._buffer[: self._start]
            self._start = 0
        self._buffer += data

    def next_frame(self) -> bytes | None:
        """The next frame without its size, or None when more bytes are needed."""
        start = self._start + 4
        if len(self._buffer) < start:
            return None
        size = int.from_bytes(self._buffer[self._start : start], "big", signed=True)
        if not 0 <= size <= self.frame_bytes_max:
            raise FrameTooLarge(f"frame of {size} bytes; the limit is {self.frame_bytes_max}")
        if len(self._buffer) < start + size:
            return None
        self._start = start + size
        return bytes(self._buffer[start : self._start])


def frame(*pieces: bytes | bytearray | memoryview) -> bytes:
    """One frame around the pieces."""
    body = b"".join(pieces)
    return len(body).to_bytes(4, "big") + body
