"""TLS handshakes of a node: who takes their steps, how many there may be, and the reasons for which they fail.

A step with a signature takes 0.2 ms (P-256) to 3 ms (RSA-4096), and OpenSSL releases the GIL meanwhile. A thread of its own takes
these steps, one at a time, so the loop goes on. What stops in the middle waits for its client, not on the thread.
"""

from __future__ import annotations

import ssl as tls
import sys
from collections import deque
from threading import Lock
from typing import Any, Protocol

from ottla.server.isolation import isolated
from ottla.server.tasks import Spawn
from ottla.server.workers import Workers

#: The limit of handshakes that have begun and are not complete.
HANDSHAKES_MAX = 2_000
#: The size of the buffer of one read of the transport.
CIPHERTEXT_BYTES = 256 * 1024


class Stream(Protocol):
    """A connection with a handshake (`TlsStream`)."""

    def next_end(self) -> tls.SSLObject | None: ...
    def stepped(self, outcome: Exception | None) -> None: ...
    def fail(self, reason: str) -> None: ...


class ServerSide(tls.SSLObject):
    """The server's end of TLS, which keeps the server name that the client requested (SNI)."""

    asked_name: str | None = None


def keep_asked_name(end: object, name: str | None, context: tls.SSLContext) -> None:
    """The `sni_callback` of a context whose `sslobject_class` is `ServerSide`."""
    if isinstance(end, ServerSide):
        end.asked_name = name


#: Only one thread at a time may replace the hook.
_HOOK = Lock()


def take_step(end: tls.SSLObject) -> Exception | None:
    """Take a step of the handshake. Returns None at its end, or why it has not ended: SSLWantReadError if the peer is to go on.

    If the name that a client asks for (SNI) is not ASCII, CPython fails the handshake and also writes a traceback to stderr, because
    the exception is within a callback of OpenSSL: any client could fill the log with them.
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


class Handshakes:
    """Shared by the TLS connections of a node: the read buffer, and the queue of handshakes.

    While a step is taken, its connection is not read, and its SSLObject and BIOs are the thread's.

    A handshake that has begun and waits for the client costs 46 KB. There are HANDSHAKES_MAX of them at most: the oldest is
    given up for a new one, so that clients that stop in the middle take neither the memory nor the way of others.
    """

    __slots__ = ("_begun", "_is_working", "_spawn", "_thread", "_waiting", "inbox")

    def __init__(self, workers: Workers, spawn: Spawn) -> None:
        self.inbox = memoryview(bytearray(CIPHERTEXT_BYTES))
        self._thread = workers.apart("handshakes")
        self._spawn = spawn
        self._is_working = False
        self._waiting: deque[Stream] = deque()
        self._begun: dict[Stream, None] = {}  # the oldest first

    def wait(self, stream: Stream) -> None:
        """Take the stream's next step after those that wait already; each waits once, because it is not read meanwhile."""
        self._waiting.append(stream)
        if not self._is_working:
            self._is_working = True
            self._spawn(self._work(), "handshakes")

    async def _work(self) -> None:
        try:
            while self._waiting:
                stream = self._waiting.popleft()
                end = stream.next_end()
                if end is not None:
                    isolated(stream.stepped, await self._thread.run(take_step, end))
        finally:
            self._is_working = False

    def begin(self, stream: Stream) -> None:
        self._begun[stream] = None
        if len(self._begun) > HANDSHAKES_MAX:
            next(iter(self._begun)).fail("SSL handshake failed: it was not complete, and too many others had begun")

    def end(self, stream: Stream) -> None:
        self._begun.pop(stream, None)


def not_tls(first_bytes: bytes) -> str:
    """Describes the bytes of a peer that does not begin a TLS handshake."""
    if first_bytes[:1].isalpha():
        return "the first bytes are text, such as an HTTP request: this listener wants SSL"
    return "the first bytes are no TLS handshake: the client speaks plaintext, but this listener wants SSL"


def reason_of(error: Exception) -> str:
    """OpenSSL's reason, without the places in its sources."""
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
