"""Receiving: bytes into frames (a four-byte size, then that many bytes), with as little copying and memory as can be.

    one buffer per event loop      every connection reads into it, and its frames are served straight from it before the
                                   loop reads again; so ten thousand idle connections cost no receive buffers
    the start of a frame           that has not come in whole is kept by the connection, and put back before its next read
    a large frame                  gets a buffer of its own, into which the rest is read directly; it grows with what has
                                   arrived, because a declared size is only a claim: 5,000 sockets that each announce
                                   100 MiB cost what they sent

This file knows nothing of what is in a frame.
"""

from __future__ import annotations

from struct import Struct
from typing import TypeAlias

from ottla.server.network.pauses import RequestBytes
from ottla.server.transport import NO_LOW_WATER, LowWater, Woken

#: The size of the buffer of one read. Larger reads save system calls until the buffer no longer fits the processor's cache.
RECEIVE_BUFFER_BYTES = 256 * 1024
#: From this size on an unfinished frame is read into its own buffer; below it, copying its start back is cheaper than the
#: extra system call that ends such a frame exactly.
LARGE_FRAME_BYTES = 64 * 1024
#: A large frame's buffer grows by this factor: memory stays within four times the bytes received, and a
#: frame is copied a third of its size at most.
GROWTH = 4
#: Buffers for frames of up to a MiB are kept for the next ones: producers send hundreds of KB per request, and fresh
#: memory costs page faults (measured at 0.2 s of CPU per GB).
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
        """Return a buffer for a frame of `size` bytes, if there is one to spare."""
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


class FrameProtocol(Woken):
    """Call `serve` with the received bytes; it returns how many it has used, and the rest is kept."""

    __slots__ = (
        "_inbox",
        "_large",
        "_large_counted",
        "_large_have",
        "_large_need",
        "_large_pooled",
        "_low_water",
        "_start",
    )

    def __init__(self, inbox: ReceiveBuffer) -> None:
        self._inbox = inbox
        self._start: bytes = b""
        self._large: bytearray | None = None
        self._large_have = 0
        self._large_need = 0
        self._large_pooled = self._large_counted = False
        self._low_water = NO_LOW_WATER

    def woken_by(self, low_water: LowWater) -> None:
        self._low_water = low_water

    def serve(self, buf: Buffer, pos: int, end: int) -> int:
        """Serve the whole frames in buf[pos:end]; give the position of the first byte not served."""
        raise NotImplementedError

    def served(self) -> None:
        """Write the responses, because all that came in one read has been served."""

    @property
    def is_counted(self) -> bool:
        """Return True if the bytes of large frames count in the memory that all connections share (queued.max.request.bytes)."""
        return True

    def wait_for_memory(self) -> None:
        """There is no memory for a large frame: read nothing more until `has_memory` is called."""
        raise NotImplementedError

    def has_memory(self) -> None:
        """There is memory again, perhaps: go on with what is kept, but not in this call."""
        raise NotImplementedError

    def get_buffer(self, sizehint: int) -> memoryview:
        large = self._large
        if large is not None:
            return memoryview(large)[self._large_have : min(len(large), self._large_need)]
        start = self._start
        if start:
            size = len(start)
            self._inbox.data[:size] = start
            return self._inbox.view[size:]
        return self._inbox.view

    def buffer_updated(self, nbytes: int) -> None:
        if self._large is not None:
            self._large_updated(nbytes)
            return
        inbox = self._inbox.data
        end = nbytes
        if self._start:
            end += len(self._start)
            self._start = b""
        pos = self.serve(inbox, 0, end)
        if pos != end:
            self._keep(inbox, pos, end)
        else:
            self._low_water.at(0)
        self.served()

    def serve_kept(self) -> None:
        """Call `serve` again with the bytes that it has left."""
        kept = self._start
        if kept and self._large is None:
            self._start = b""
            pos = self.serve(kept, 0, len(kept))
            if pos != len(kept):
                self._keep(kept, pos, len(kept))
            self.served()

    def drop_received(self) -> None:
        """The connection is going: nothing more will be served."""
        self._low_water = NO_LOW_WATER
        self._start = b""
        large, self._large = self._large, None
        if large is not None:
            self._end_large(large)
        self._inbox.requests.forget(self)

    @property
    def received_bytes_kept(self) -> int:
        return len(self._start) if self._large is None else len(self._large)

    def _keep(self, buf: Buffer, pos: int, end: int) -> None:
        have = end - pos
        need = read_size(buf, pos)[0] + 4 if have >= 4 else 0
        self._low_water.at(need - have)
        if need <= LARGE_FRAME_BYTES or need <= have:
            # `need <= have`: complete frames were left because the connection is paused.
            self._start = bytes(memoryview(buf)[pos:end])
            return
        large = self._inbox.borrow(need)
        self._large_pooled = large is not None
        if large is None and have < LARGE_FRAME_BYTES:
            # A large size is only a claim until a large part has come: 5,000 claims with a buffer each were 1.3 GB.
            self._start = bytes(memoryview(buf)[pos:end])
            return
        self._large_counted = self.is_counted
        if self._large_counted and not self._inbox.requests.take(self, need):
            if large is not None:
                self._inbox.give_back(large)
            self._start = bytes(memoryview(buf)[pos:end])
            self.wait_for_memory()
            return
        if large is None:
            large = bytearray(min(need, GROWTH * have))
        large[:have] = memoryview(buf)[pos:end]
        self._large = large
        self._large_have = have
        self._large_need = need

    def _large_updated(self, nbytes: int) -> None:
        large = self._large
        assert large is not None
        have = self._large_have = self._large_have + nbytes
        need = self._large_need
        self._low_water.at(need - have)
        if have < need:
            if have == len(large):
                grown = bytearray(min(need, GROWTH * have))
                grown[:have] = large
                self._large = grown
            return
        self._large = None
        pos = self.serve(large, 0, need)
        if pos != need:
            self._start = bytes(memoryview(large)[pos:need])
        self._end_large(large)
        self.served()

    def _end_large(self, large: bytearray) -> None:
        if self._large_pooled:
            self._inbox.give_back(large)
        if self._large_counted:
            self._inbox.requests.give_back(self._large_need)
