"""TLS between a transport and one of our protocols. For the transport it is the protocol; for the protocol it is the transport.

asyncio's own TLS protocol does not fit a server of many clients: handshakes run on the event loop whenever they arrive, each
connection has a receive buffer, a large response is encrypted at once, and a failed handshake leaves no line in the log. Here

    handshakes     run on a separate thread, one at a time: the loop goes on while OpenSSL signs
    reading        from one buffer for all connections, decrypted straight into the protocol's own buffer
    writing        is encrypted as far as the transport accepts bytes; the rest stays a view of a file
    records        without data, such as key updates, count as time of the connection's turn, and the number of consecutive ones
                   is limited
    failures       have one reason each; one reason is that the peer does not speak TLS

The bytes go through `ssl.MemoryBIO`. No socket is used here, so it works with the simulator's transports as with the loop's.
"""

from __future__ import annotations

import asyncio
import ssl as tls
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, cast

from ottla.server.clock import Clock
from ottla.server.network.handshakes import RECORD_HEADER_BYTES, Handshake, Handshakes, ServerSide, reason_of
from ottla.server.network.pauses import SLOW_NS, RequestTurn
from ottla.server.network.tls_buffers import DATALESS_BYTES_MAX, PORTION_BYTES, Backlog, Ciphertext, Piece
from ottla.server.transport import NO_LOW_WATER, LowWater, Woken

#: A channel to another node, and that of a command, has its own buffer.
CHANNEL_CIPHERTEXT_BYTES = 64 * 1024
#: The limits of ciphertext that waits for the peer. Above the first one nothing more is encrypted, until it is below the
#: second.
CIPHERTEXT_HIGH_BYTES = 512 * 1024
CIPHERTEXT_LOW_BYTES = 128 * 1024


def nothing(*_: object) -> None:
    """A callback that does nothing."""


class Stop:
    """The reasons for which a stream does not read. They are bits in plain ints."""

    APP = 1  # the protocol has paused it
    TURN = 2  # the turn of the event loop is over
    ANSWERS = 4  # the peer does not read OpenSSL's answers to key updates
    CLOSED = 8


class TlsStream(Woken, LowWater, asyncio.Transport):
    """One connection, as server or as client.

    The protocol's `connection_made` is called before the handshake. `on_secured` is called when the handshake is complete,
    before the protocol gets its first bytes. `on_failed` is called at most once, with the reason, when the handshake or a
    record fails; then the caller closes the transport.
    """

    __slots__ = (
        "_app", "_app_paused", "_arrived", "_backlog", "_clock", "_closing", "_ending", "_handshake", "_held", "_inbox", "_limit", "_low_water",
        "_on_failed", "_on_secured", "_outgoing", "_pending", "_raw", "_raw_full", "_read", "_stopped", "_turn", "_wanted", "_write",
        "is_secured",
    )  # fmt: skip

    _raw: asyncio.Transport
    # The methods of OpenSSL's object: Python's own wrapper takes as long as the decryption of a small record.
    _read: Callable[[int, memoryview], int]
    _pending: Callable[[], int]
    _write: Callable[[Piece], int]

    def __init__(
        self,
        app: asyncio.BufferedProtocol,
        context: tls.SSLContext,
        clock: Clock,
        *,
        on_secured: Callable[[TlsStream], object],
        on_failed: Callable[[str], object],
        handshakes: Handshakes | None = None,
        turn: RequestTurn | None = None,
        server_name: str | None = None,
    ) -> None:
        """Make a client's stream with the name of the server; or a server's stream with the shared handshakes and the turn of
        its connections.
        """
        super().__init__()
        self._app = app
        self._clock = clock
        self._on_secured = on_secured
        self._on_failed = on_failed
        self._turn = turn
        self._inbox = memoryview(bytearray(CHANNEL_CIPHERTEXT_BYTES)) if handshakes is None else handshakes.inbox
        self._arrived = Ciphertext(clock.mono_ns)
        self._outgoing = tls.MemoryBIO()
        self._handshake = Handshake(self, context, self._arrived, self._outgoing, handshakes, server_name)
        self._backlog = Backlog()
        self._limit = CIPHERTEXT_HIGH_BYTES
        self._stopped = 0
        self._app_paused = False
        self._raw_full = False
        self._closing = False
        self._ending = False
        self._wanted = 0  # plaintext that the protocol waits for
        self._held = 0  # ciphertext since the last data: an incomplete record, and records without data
        self._low_water = NO_LOW_WATER
        self.is_secured = False

    @property
    def peer_certificate(self) -> bytes | None:
        """The verified certificate of the peer in DER, or None."""
        end = self._handshake.end
        return None if end is None else end.getpeercert(binary_form=True)

    @property
    def asked_name(self) -> str | None:
        """The host name that the client requested (SNI).

        It is None if it sent none, for example because it connected to an address.
        """
        end = self._handshake.end
        return end.asked_name if isinstance(end, ServerSide) else None

    # The transport's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's, so this can be a cast only.
        self._raw = cast(asyncio.Transport, transport)
        self._raw.set_write_buffer_limits(high=CIPHERTEXT_HIGH_BYTES, low=CIPHERTEXT_LOW_BYTES)
        self._app.connection_made(self)
        self._handshake.connected(self._raw)

    def connection_lost(self, exc: Exception | None) -> None:
        self._close_in()
        self._backlog.clear()
        app = self._app
        self._app = _NO_PROTOCOL  # the protocol refers to its transport: leave no cycle to the garbage collector
        self._on_secured = self._on_failed = nothing
        self._low_water = NO_LOW_WATER
        self._handshake.over()
        app.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._inbox

    def buffer_updated(self, nbytes: int) -> None:
        if self._closing:
            return
        self._arrived.arrive(self._inbox[:nbytes])
        if self.is_secured:
            self._deliver_in_turn()
        else:
            self._handshake.go_on(self._inbox[: min(nbytes, RECORD_HEADER_BYTES)])
        self._arrived.keep()

    def eof_received(self) -> bool:
        if not self._closing:
            if not self.is_secured and self._handshake.end is not None:
                self.fail("SSL handshake failed: the peer closed the connection")
            self._app.eof_received()
            self.close()
        return True  # the transport stays open for bytes that are not written yet; `close` closes it

    def pause_writing(self) -> None:
        self._raw_full = True

    def resume_writing(self) -> None:
        self._raw_full = False
        self._encrypt()
        self._go_on(Stop.ANSWERS)

    # The handshake's calls

    def secured(self) -> None:
        within: Any = getattr(self._handshake.end, "_sslobj", self._handshake.end)
        self._read, self._pending, self._write = within.read, within.pending, within.write
        self.is_secured = True
        self._on_secured(self)
        self._encrypt()
        self._resume()

    def fail(self, reason: str) -> None:
        self._handshake.over()
        on_failed, self._on_failed = self._on_failed, nothing
        on_failed(reason)

    # Reading

    def _deliver_in_turn(self) -> None:
        """Decrypt what has arrived, as far as there is time in this turn of the event loop."""
        turn = self._turn
        if turn is None:
            self._deliver(None)
            return
        left_ns = turn.left_ns
        if left_ns > 0:
            began_ns = self._clock.mono_ns()
            self._deliver(began_ns + left_ns)
            # The protocol has counted the time that it took for its requests.
            spent_ns = self._clock.mono_ns() - began_ns - (left_ns - turn.left_ns)
            if spent_ns > SLOW_NS:
                turn.spend(spent_ns)
        if (turn.left_ns <= 0 or self._arrived.unfed) and not self._stopped:
            self._stop(Stop.TURN)
            turn.wait(self.next_turn)

    def next_turn(self) -> None:
        self._go_on(Stop.TURN)

    def _deliver(self, until_ns: int | None) -> None:
        """Decrypt what has arrived into the protocol's buffers. After `until_ns` OpenSSL gets nothing more."""
        arrived, read, pending = self._arrived, self._read, self._pending
        has_ended, left, held, bio, unfed = False, 0, self._held, arrived.bio, arrived.unfed
        try:
            while not self._stopped:
                buffer = cast(memoryview, self._app.get_buffer(-1))
                have, room = 0, len(buffer)
                try:
                    # One call reads one record, and librdkafka makes a record of each message. Asking how much is pending takes
                    # less time than the exception at the end of the data.
                    while have < room:
                        left = bio.pending
                        if unfed and left < PORTION_BYTES:
                            unfed = arrived.feed(until_ns)
                            left = bio.pending
                        if not left and not pending():
                            break
                        got = read(room - have, buffer[have:])
                        if not got:
                            has_ended = True  # close_notify
                            break
                        have += got
                        held = 0
                except tls.SSLWantReadError:
                    held += left  # a partial record is left
                if have:
                    self._app.buffer_updated(have)
                if held > DATALESS_BYTES_MAX:
                    self.send()
                    self.fail(f"SSL failed: {held} bytes of records without data")
                    return
                if have < room and (has_ended or not left or not unfed):
                    break
        except tls.SSLError as error:
            self.send()
            self.fail(f"SSL failed: {reason_of(error)}")
            return
        self._held = held
        self._low_water.at(self._wanted - held)
        if self._outgoing.pending:
            self.send()
            if self._raw_full:
                self._stop(Stop.ANSWERS)
        if has_ended and not self._closing:
            self.eof_received()

    def pause_reading(self) -> None:
        self._stop(Stop.APP)

    def resume_reading(self) -> None:
        if self._stopped & Stop.APP:
            self._stopped &= ~Stop.APP
            # The call is deferred, because the protocol has not finished its own work.
            self._clock.call_later(0, self._resume)

    def _stop(self, reason: int) -> None:
        self._stopped |= reason
        self._raw.pause_reading()

    def _go_on(self, reason: int) -> None:
        if self._stopped & reason:
            self._stopped &= ~reason
            self._resume()

    def _resume(self) -> None:
        if not self._stopped:
            self._deliver_in_turn()
            if not self._stopped:
                self._raw.resume_reading()

    def woken_by(self, low_water: LowWater) -> None:
        self._low_water = low_water

    def at(self, nbytes: int) -> None:
        """Take note that the protocol waits for this many bytes.

        Their ciphertext is longer, except for the part of the first record that OpenSSL already has.
        """
        self._wanted = nbytes

    # Writing

    def write(self, data: Piece) -> None:
        if not self._closing:
            self._backlog.add(data)
            self._encrypt()

    def writelines(self, list_of_data: Iterable[Piece]) -> None:
        if not self._closing:
            for data in list_of_data:
                self._backlog.add(data)
            self._encrypt()

    def _encrypt(self) -> None:
        """Encrypt as much as the transport accepts, and pause or resume the protocol."""
        if not self.is_secured or self._ending:
            return
        backlog, write = self._backlog, self._write
        while backlog.nbytes and not self._raw_full:
            piece = backlog.next_piece()
            try:
                done = write(piece)
                while done < len(piece):
                    done += write(memoryview(piece)[done:])
            except tls.SSLError as error:
                self.fail(f"SSL failed: {reason_of(error)}")
                self.abort()
                return
            self.send()
        if backlog.nbytes:
            if backlog.nbytes > self._limit and not self._app_paused:
                self._app_paused = True
                self._app.pause_writing()
        elif self._closing:
            self._end()
        elif self._app_paused and not self._raw_full:
            self._app_paused = False
            self._app.resume_writing()

    def send(self) -> None:
        """Pass OpenSSL's own bytes for the peer to the transport."""
        if self._outgoing.pending:
            self._raw.write(self._outgoing.read())

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is not None:
            self._limit = high

    def get_write_buffer_size(self) -> int:
        return self._backlog.nbytes + self._raw.get_write_buffer_size()

    # Closing

    def close(self) -> None:
        """Close after the written bytes."""
        if self._closing:
            return
        self._close_in()
        if not self._backlog.nbytes or not self.is_secured:
            self._end()
        else:
            self._raw.pause_reading()

    def _close_in(self) -> None:
        self._closing = True
        self._stopped = Stop.CLOSED
        self._arrived.drop()

    def _end(self) -> None:
        self._ending = True
        end = self._handshake.end
        if self.is_secured and end is not None:
            with suppress(tls.SSLError):
                end.unwrap()  # this writes close_notify; the peer's is not awaited
            self.send()
        self._raw.close()

    def abort(self) -> None:
        self._close_in()
        self._ending = True
        self._raw.abort()

    def can_write_eof(self) -> bool:
        return False

    def is_closing(self) -> bool:
        return self._closing

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._handshake.end if name == "ssl_object" else self._raw.get_extra_info(name, default)


_NO_PROTOCOL = asyncio.BufferedProtocol()
