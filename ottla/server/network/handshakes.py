"""TLS handshakes of a node: the thread that takes their steps, how many there may be, and the reasons for failures.

A step with a signature takes 0.2 ms (P-256) to 3 ms (RSA-4096), and OpenSSL releases the GIL meanwhile. A separate thread takes
these steps, one at a time, so the loop goes on. A handshake that stops in the middle waits for its client, and does not occupy
the thread.
"""

from __future__ import annotations

import asyncio
import ssl as tls
import sys
from collections import deque
from threading import Lock
from typing import Any, Protocol

from ottla.server.network.tls_buffers import PORTION_BYTES, Ciphertext
from ottla.server.tasks import Spawn, isolated
from ottla.server.workers import Workers

#: The most handshakes that have begun and are not complete.
HANDSHAKES_MAX = 2_000
#: The size of the buffer of one read of the transport.
CIPHERTEXT_BYTES = 256 * 1024
#: The content type of the first record of every handshake.
HANDSHAKE_RECORD = 0x16
#: Type, version and length of a record.
RECORD_HEADER_BYTES = 5


class ServerSide(tls.SSLObject):
    """The server's end of TLS, which keeps the server name that the client requested (SNI)."""

    asked_name: str | None = None


def keep_asked_name(end: object, name: str | None, context: tls.SSLContext) -> None:
    """Keep the server name. This is the `sni_callback` of a context whose `sslobject_class` is `ServerSide`."""
    if isinstance(end, ServerSide):
        end.asked_name = name


#: Only one thread at a time may replace the hook.
_HOOK = Lock()


def take_step(end: tls.SSLObject) -> Exception | None:
    """Take a step of the handshake.

    Return None at its end, or else why it has not ended: SSLWantReadError means that it waits for the peer.

    If the name that a client requests (SNI) is not ASCII, the handshake fails, and CPython also writes a traceback to stderr,
    because the exception is raised in a callback of OpenSSL: any client could fill the log with these.
    """
    with _HOOK:
        hook = sys.unraisablehook

        def quiet(unraisable: Any) -> None:
            if not isinstance(unraisable.exc_value, UnicodeDecodeError):
                hook(unraisable)

        sys.unraisablehook = quiet
        try:
            end.do_handshake()
        except (tls.SSLError, ValueError) as error:
            return error
        finally:
            sys.unraisablehook = hook
    return None


class HandshakeStream(Protocol):
    """The connection of a handshake (`TlsStream`)."""

    def is_closing(self) -> bool: ...
    def send(self) -> None: ...
    def secured(self) -> None: ...
    def fail(self, reason: str) -> None: ...


class Handshake:
    """The handshake of one connection: that of a server with the shared `Handshakes`, or that of a client with the name of the
    server. `end` is made at the first step, so a connection that sends nothing needs none.
    """

    __slots__ = (
        "_arrived", "_context", "_hello_bytes", "_outgoing", "_raw", "_server_name", "_shared", "_stream", "end",
    )  # fmt: skip

    _raw: asyncio.Transport

    def __init__(
        self,
        stream: HandshakeStream,
        context: tls.SSLContext,
        arrived: Ciphertext,
        outgoing: tls.MemoryBIO,
        shared: Handshakes | None,
        server_name: str | None,
    ) -> None:
        self._stream: HandshakeStream | None = stream
        self._context = context
        self._arrived = arrived
        self._outgoing = outgoing
        self._shared = shared
        self._server_name = server_name
        self._hello_bytes = 0
        self.end: tls.SSLObject | None = None

    def connected(self, raw: asyncio.Transport) -> None:
        self._raw = raw
        if self._server_name is not None:
            self._step()

    def go_on(self, first: memoryview) -> None:
        """Take the next step if enough bytes have arrived. `first` are the first of the bytes that were just received."""
        if self._shared is None:
            self._step()
        elif self.end is None:
            if self._has_hello(bytes(first)):
                self._wait(self._shared)
        elif self._context.verify_mode != tls.CERT_NONE or self.end.cipher() is None:
            self._wait(self._shared)  # a client's certificates are verified, or the step has no signature
        else:
            self._step()  # 40 us: less than going to the thread and back

    def _has_hello(self, first: bytes) -> bool:
        """Return True when the first record is complete. Until then a connection takes only the memory of what it has sent."""
        if self._hello_bytes == 0:
            if first[0] != HANDSHAKE_RECORD:
                self.fail(f"SSL handshake failed: {not_tls(first)}")
                return False
            # Less than a header is not passed to OpenSSL.
            length = RECORD_HEADER_BYTES + int.from_bytes(first[3:5], "big") if len(first) == RECORD_HEADER_BYTES else 1
            self._hello_bytes = min(length, PORTION_BYTES)
        return self._arrived.bio.pending >= self._hello_bytes

    def _wait(self, shared: Handshakes) -> None:
        """Stop reading until the step has been taken, so that at most one read waits."""
        self._raw.pause_reading()
        shared.wait(self)

    def _step(self) -> None:
        end = self.next_end()
        if end is not None:
            self.stepped(take_step(end))

    def next_end(self) -> tls.SSLObject | None:
        """Return the TLS end of a connection whose next step is to be taken, or None if the connection is closed."""
        if self._stream is None or self._stream.is_closing():
            return None
        if self.end is None:
            name = self._server_name
            self.end = self._context.wrap_bio(
                self._arrived.bio, self._outgoing, server_side=name is None, server_hostname=name
            )
            if self._shared is not None:
                self._shared.begin(self)
        return self.end

    def stepped(self, outcome: Exception | None) -> None:
        """Go on after a step (`take_step`). The connection may have been closed meanwhile."""
        stream = self._stream
        if stream is None or stream.is_closing():
            return
        stream.send()  # with the alert, if there is one
        if isinstance(outcome, tls.SSLWantReadError):
            if not self._arrived.unfed:
                self._raw.resume_reading()
            elif self._shared is None:
                self._arrived.feed()
                self._step()
            else:
                self._arrived.feed()
                self._wait(self._shared)
        elif outcome is not None:
            stream.fail(f"SSL handshake failed: {reason_of(outcome)}")
        else:
            self.over()
            stream.secured()

    def fail(self, reason: str) -> None:
        if self._stream is not None:
            self._stream.fail(reason)

    def over(self) -> None:
        """End the handshake: it is complete, has failed, or the connection is lost.

        From now on nothing refers to the connection.
        """
        self._stream = None
        if self._shared is not None:
            self._shared.end(self)


class Handshakes:
    """The read buffer and the queue of handshakes, which all TLS connections of a node share.

    While a step is taken, its connection is not read, and its SSLObject and BIOs belong to the thread. A handshake that has
    begun and waits for the client takes 46 KB. There are at most HANDSHAKES_MAX of these: for a new one the oldest is closed,
    so that clients that stop in the middle can neither fill the memory nor block others.
    """

    __slots__ = ("_begun", "_is_working", "_spawn", "_thread", "_waiting", "inbox")

    def __init__(self, workers: Workers, spawn: Spawn) -> None:
        self.inbox = memoryview(bytearray(CIPHERTEXT_BYTES))
        self._thread = workers.apart("handshakes")
        self._spawn = spawn
        self._is_working = False
        self._waiting: deque[Handshake] = deque()
        self._begun: dict[Handshake, None] = {}  # the oldest first

    def wait(self, handshake: Handshake) -> None:
        """Let the handshake take its next step after those that are waiting.

        Each waits only once, because its connection is not read meanwhile.
        """
        self._waiting.append(handshake)
        if not self._is_working:
            self._is_working = True
            self._spawn(self._work(), "handshakes")

    async def _work(self) -> None:
        try:
            while self._waiting:
                handshake = self._waiting.popleft()
                end = handshake.next_end()
                if end is not None:
                    isolated(handshake.stepped, await self._thread.run(take_step, end))
        finally:
            self._is_working = False

    def begin(self, handshake: Handshake) -> None:
        self._begun[handshake] = None
        if len(self._begun) > HANDSHAKES_MAX:
            next(iter(self._begun)).fail("SSL handshake failed: it was not complete, and too many others had begun")

    def end(self, handshake: Handshake) -> None:
        self._begun.pop(handshake, None)


def not_tls(first_bytes: bytes) -> str:
    """Describe the bytes of a peer that does not begin a TLS handshake."""
    if first_bytes[:1].isalpha():
        return "the first bytes are text, such as an HTTP request: this listener wants SSL"
    return "the first bytes are no TLS handshake: the client speaks plaintext, but this listener wants SSL"


def reason_of(error: Exception) -> str:
    """Return OpenSSL's reason, without the places in its source code."""
    if isinstance(error, tls.SSLCertVerificationError):
        return f"the peer's certificate is not accepted: {error.verify_message}"
    if isinstance(error, tls.SSLError) and error.reason == "CALLBACK_FAILED":
        return "the host name that the client asks for is not ASCII"
    if isinstance(error, tls.SSLError) and error.reason:
        words = error.reason.lower().replace("_", " ")
        for prefix in ("tlsv1 alert ", "tlsv13 alert ", "sslv3 alert "):
            if words.startswith(prefix):
                return f"the peer answered with the alert '{words.removeprefix(prefix)}'"
        return words
    return str(error)
