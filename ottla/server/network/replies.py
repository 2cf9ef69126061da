"""The responses of one connection: they leave in the order of its requests, and those of one read together.

A response that waits (acks=all, a long poll) holds later ones back. What waits is bounded: above the bound the connection is
not read (`hold_back`), until only half of the bound is left.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from ottla.protocol.primitives import Pieces
from ottla.server.network.context import PendingResponse
from ottla.server.network.frames import FrameProtocol, ReceiveBuffer
from ottla.server.network.pauses import HELD_BYTES_MAX, HELD_REPLIES_MAX
from ottla.server.transport import write_pieces

#: The replies of one wake-up are written earlier if they have this many bytes.
FLUSH_BYTES = 256 * 1024
NO_PARTS: Pieces = []


class CountsSent(Protocol):
    """The listener of the connection."""

    bytes_out: int


class Replies(FrameProtocol):
    """The sending side of a connection."""

    __slots__ = (
        "_held",
        "_held_bytes",
        "_is_held_back",
        "_out",
        "_out_bytes",
        "closed",
        "is_serving",
        "sent_by",
        "transport",
    )

    transport: asyncio.Transport
    sent_by: CountsSent

    def __init__(self, inbox: ReceiveBuffer) -> None:
        super().__init__(inbox)
        self._held: deque[PendingResponse] = deque()
        self._out: Pieces = []
        self._held_bytes = self._out_bytes = 0
        self._is_held_back = self.closed = False
        #: Whether a read is being served: then responses wait for those of its other requests.
        self.is_serving = False

    def hold_back(self) -> None:
        """Read no more requests, because too many replies wait."""
        raise NotImplementedError  # the receiving side of the connection has it

    def end_hold(self) -> None:
        """Read requests again."""
        raise NotImplementedError  # likewise

    @property
    def is_waiting(self) -> bool:
        """Return True if a request has no response yet."""
        return bool(self._held)

    def reply(self, head: bytes, parts: Pieces, nbytes: int) -> None:
        """Send a frame when its turn comes. `nbytes` counts the head and the parts."""
        if self._held:
            self._held.append(PendingResponse([head, *parts], nbytes))
            self._hold(nbytes)
            return
        if self.is_serving:
            self._out += (head, *parts)
            self._out_bytes += nbytes
            if self._out_bytes > FLUSH_BYTES:
                self.flush()
        elif not self.closed:
            self.sent_by.bytes_out += nbytes
            write_pieces(self.transport, [head, *parts], nbytes)

    def send(self, frame: bytes, nbytes: int) -> None:
        """Send a frame of one piece when its turn comes.

        It is for a fast path: none of its frames closes the connection earlier.
        """
        if self._held or self.is_serving:
            self.reply(frame, NO_PARTS, nbytes)
            return
        self.sent_by.bytes_out += nbytes
        self.transport.write(frame)

    def wait(self, pending: PendingResponse, kept_bytes: int) -> None:
        """Keep the place of a reply that is not ready yet."""
        self._held.append(pending)
        if kept_bytes or len(self._held) > HELD_REPLIES_MAX:
            self._hold(kept_bytes)

    def complete(self, pending: PendingResponse, head: bytes, parts: Pieces, nbytes: int) -> None:
        """Take the response of a fast path that has waited, and for which no bytes were kept."""
        held = self._held
        if len(held) == 1 and not parts and not self.is_serving:
            # The usual one: no other request of this client waits.
            held.popleft()
            self.sent_by.bytes_out += nbytes
            self.transport.write(head)
            if self._is_held_back:
                self._look_at_hold()
            return
        pending.parts = [head, *parts]
        pending.nbytes = nbytes
        self.ready(pending, 0)

    def ready(self, pending: PendingResponse, kept_bytes: int) -> None:
        """Take the parts of a reply that was not ready (or none, if nothing is to be sent)."""
        held = self._held
        if self.closed:
            return
        if held[0] is not pending:
            self._held_bytes += pending.nbytes - kept_bytes
            return
        if kept_bytes:
            self._held_bytes -= kept_bytes
        held.popleft()
        parts, nbytes = pending.parts, pending.nbytes
        if held or self.is_serving:
            while parts is not None:
                self._out += parts
                self._out_bytes += nbytes
                if not held or (parts := held[0].parts) is None:
                    break
                nbytes = held.popleft().nbytes
                self._held_bytes -= nbytes
            if not self.is_serving or self._out_bytes > FLUSH_BYTES:
                self.flush()
        elif parts:  # the usual one: no other request of this client waits
            self.sent_by.bytes_out += nbytes
            write_pieces(self.transport, parts, nbytes)
        if self._is_held_back:
            self._look_at_hold()

    def flush(self) -> None:
        """Pass the responses whose turn has come to the transport."""
        out, nbytes = self._out, self._out_bytes
        if not out or self.closed:
            return
        self._out, self._out_bytes = [], 0
        self.sent_by.bytes_out += nbytes
        write_pieces(self.transport, out, nbytes)

    def drop_replies(self) -> list[PendingResponse]:
        """Drop the responses, because the connection is closed. Return those that have nothing to send yet."""
        self._out.clear()
        held, self._held = self._held, deque()
        return [reply for reply in held if reply.parts is None]

    def _hold(self, nbytes: int) -> None:
        self._held_bytes += nbytes
        if len(self._held) > HELD_REPLIES_MAX or self._held_bytes > HELD_BYTES_MAX:
            self._is_held_back = True
            self.hold_back()

    def _look_at_hold(self) -> None:
        if len(self._held) < HELD_REPLIES_MAX // 2 and self._held_bytes <= HELD_BYTES_MAX // 2:
            self._is_held_back = False
            self.end_hold()
