"""Receiving: bytes into frames (a four-byte size, then that many bytes), with as little copying and memory as can be.

    one buffer per event loop      every connection reads into it, and its frames are served straight from it before the loop
                                   reads again; so ten thousand idle connections need no receive buffers
    the start of a frame           that is incomplete is kept by the connection, and put back before its next read
    a large frame                  gets its own buffer, into which the rest is read directly; it grows with what has arrived,
                                   because a declared size is only a claim: 5,000 sockets that each announce 100 MiB take only
                                   the memory of what they have sent

This file knows nothing of the contents of a frame.
"""

from __future__ import annotations

from struct import Struct
from typing import TypeAlias

from ottla.server.network.pauses import RequestBytes
from ottla.server.transport import NO_LOW_WATER, LowWater, Woken

#: The size of the buffer of one read. Larger reads save system calls until the buffer no longer fits the processor's cache.
RECEIVE_BUFFER_BYTES = 256 * 1024
#: From this size on an incomplete frame is read into its own buffer. Below it, copying its start back takes less time than the
#: additional system call that reads exactly the rest.
LARGE_FRAME_BYTES = 64 * 1024
#: The buffer of a large frame grows by this factor: so memory stays within four times the received bytes, and at most a third
#: of a frame's size is copied.
GROWTH = 4
#: Buffers for frames of up to a MiB are kept for later frames: producers send hundreds of KB per request, and fresh memory
#: causes page faults (measured: 0.2 s of CPU per GB).
POOLED_BYTES = 1024 * 1024
POOLED_COUNT = 4

read_size = Struct(">i").unpack_from


#: The buffer that frames are read from: the receive buffer, or one for a single large frame.
Buffer: TypeAlias = bytearray | bytes


class ReceiveBuffer:
    """The buffer that all connections of one loop read into, and a few spare ones for large frames."""

    __slots__ = ("_spare", "_unmade", "data", "requests", "view")

    def __init__(
        self, size: int = RECEIVE_BUFFER_BYTES, pooled: int = POOLED_COUNT, requests: RequestBytes | None = None
    ) -> None:
        assert size >= 2 * LARGE_FRAME_BYTES, "a frame that is not large must leave room to read more"
        self.data = bytearray(size)
        self.view = memoryview(self.data)
        self._spare: list[bytearray] = []
        self._unmade = pooled
        self.requests = RequestBytes() if requests is None else requests

    def borrow(self, size: int) -> bytearray | None:
        """Return a spare buffer for a frame of `size` bytes, or None."""
        if size > POOLED_BYTES:
            return None
        if self._spare:
            return self._spare.pop()
        if not self._unmade:
            return None
        self._unmade -= 1
        return bytearray(POOLED_BYTES)

    def give_back(self, buffer: bytearray) -> None:
        self._spare.append(buffer)


class LargeFrame:
    """The buffer of one large frame: what has come of it, and what it needs."""

    __slots__ = ("buffer", "have", "is_counted", "is_pooled", "need")

    def __init__(self, buffer: bytearray, have: int, need: int, *, is_pooled: bool, is_counted: bool) -> None:
        self.buffer = buffer
        self.have = have
        self.need = need
        self.is_pooled = is_pooled
        self.is_counted = is_counted

    def room(self) -> memoryview:
        return memoryview(self.buffer)[self.have : min(len(self.buffer), self.need)]

    def received(self, nbytes: int) -> None:
        """So many more bytes have come. A buffer that is full grows."""
        have = self.have = self.have + nbytes
        if have == len(self.buffer) < self.need:
            grown = bytearray(min(self.need, GROWTH * have))
            grown[:have] = self.buffer
            self.buffer = grown


class FrameProtocol(Woken):
    """Calls `serve` with the received bytes. It returns how many of them it has used, and the rest is kept."""

    __slots__ = ("_inbox", "_kept", "_low_water")

    def __init__(self, inbox: ReceiveBuffer) -> None:
        self._inbox = inbox
        #: What has come of a frame that is not whole, or was not served; empty between two reads of whole frames.
        self._kept: bytes | LargeFrame = b""
        self._low_water = NO_LOW_WATER

    def woken_by(self, low_water: LowWater) -> None:
        self._low_water = low_water

    def serve(self, buf: Buffer, pos: int, end: int) -> int:
        """Serve the complete frames in buf[pos:end]. Return the position of the first byte that was not served."""
        raise NotImplementedError

    def served(self) -> None:
        """Write the responses, because all that came in one read has been served."""

    @property
    def is_counted(self) -> bool:
        """Return True if the bytes of large frames count in the memory that all connections share (queued.max.request.bytes)."""
        return True

    def wait_for_memory(self) -> None:
        """Read nothing more until `has_memory` is called, because there is no memory for a large frame."""
        raise NotImplementedError

    def has_memory(self) -> None:
        """Go on with the kept bytes, but not within this call, because there may be memory again."""
        raise NotImplementedError

    def get_buffer(self, sizehint: int) -> memoryview:
        kept = self._kept
        if not kept:
            return self._inbox.view
        if isinstance(kept, LargeFrame):
            return kept.room()
        size = len(kept)
        self._inbox.data[:size] = kept
        return self._inbox.view[size:]

    def buffer_updated(self, nbytes: int) -> None:
        kept, inbox, end = self._kept, self._inbox.data, nbytes
        if kept:
            if isinstance(kept, LargeFrame):
                self._large_updated(kept, nbytes)
                return
            end += len(kept)
            self._kept = b""
        pos = self.serve(inbox, 0, end)
        if pos != end:
            self._keep(inbox, pos, end)
        elif kept:
            self._low_water.at(0)
        self.served()

    def serve_kept(self) -> None:
        """Call `serve` again with the bytes that it has not used."""
        kept = self._kept
        if kept and not isinstance(kept, LargeFrame):
            self._kept = b""
            pos = self.serve(kept, 0, len(kept))
            if pos != len(kept):
                self._keep(kept, pos, len(kept))
            self.served()

    def drop_received(self) -> None:
        """Drop everything: the connection is closing, and nothing more will be served."""
        self._low_water = NO_LOW_WATER
        kept, self._kept = self._kept, b""
        if isinstance(kept, LargeFrame):
            self._end_large(kept)
        self._inbox.requests.forget(self)

    @property
    def received_bytes_kept(self) -> int:
        kept = self._kept
        return len(kept.buffer if isinstance(kept, LargeFrame) else kept)

    def _keep(self, buf: Buffer, pos: int, end: int) -> None:
        have = end - pos
        need = read_size(buf, pos)[0] + 4 if have >= 4 else 0
        self._low_water.at(need - have)
        self._kept = self._large(buf, pos, end, need) or bytes(memoryview(buf)[pos:end])

    def _large(self, buf: Buffer, pos: int, end: int, need: int) -> LargeFrame | None:
        """Begin a large frame; None: the start of this one is kept as it is, for now."""
        have = end - pos
        if need <= LARGE_FRAME_BYTES or need <= have:
            # `need <= have`: complete frames are left, because the connection was paused.
            return None
        buffer = self._inbox.borrow(need)
        is_pooled = buffer is not None
        if buffer is None and have < LARGE_FRAME_BYTES:
            # A large size is only a claim until many bytes have come: 5,000 claims with a buffer each took 1.3 GB.
            return None
        is_counted = self.is_counted
        if is_counted and not self._inbox.requests.take(self, need):
            if buffer is not None:
                self._inbox.give_back(buffer)
            self.wait_for_memory()
            return None
        if buffer is None:
            buffer = bytearray(min(need, GROWTH * have))
        buffer[:have] = memoryview(buf)[pos:end]
        return LargeFrame(buffer, have, need, is_pooled=is_pooled, is_counted=is_counted)

    def _large_updated(self, large: LargeFrame, nbytes: int) -> None:
        large.received(nbytes)
        need = large.need
        self._low_water.at(need - large.have)
        if large.have < need:
            return
        self._kept = b""
        pos = self.serve(large.buffer, 0, need)
        if pos != need:
            self._kept = bytes(memoryview(large.buffer)[pos:need])
        self._end_large(large)
        self.served()

    def _end_large(self, large: LargeFrame) -> None:
        if large.is_pooled:
            self._inbox.give_back(large.buffer)
        if large.is_counted:
            self._inbox.requests.give_back(large.need)
