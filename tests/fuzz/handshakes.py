"""TLS before the login: arbitrary records before the handshake is complete, and the frames of a login inside of records.

Invariant 48: nothing is served before a mechanism has accepted the client, over TLS as well.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import Any

from ottla.local.certificates import Authority
from ottla.server.clock import TimerWheel
from ottla.server.network.handshakes import Handshakes, ServerSide, keep_asked_name
from ottla.server.network.listener import Listener
from ottla.server.network.tls_stream import TlsStream
from ottla.server.principal import ANONYMOUS, Principal
from ottla.server.sasl.login import Logins
from tests.fuzz.logins import DISPATCHER, ENDPOINT, RULES, OneWorld, TurnsClock, answers_to, login_seeds
from tests.fuzz.target import Target, Wrong, equal
from tests.fuzz.wire import INBOX, LIMITS, SentBytes

#: No handshake has more messages.
FLIGHTS_MAX = 10


class AtOnce:
    """Workers that run in the caller's own thread."""

    async def run(self, function: Any, *args: object) -> Any:
        return function(*args)

    def apart(self, name: str) -> AtOnce:
        return self

    def process(self) -> Any:
        raise NotImplementedError


def run_through(work: Any, name: str) -> Any:
    with suppress(StopIteration):
        work.send(None)


class Tls:
    """The server's side of TLS, which asks for a certificate without requiring one."""

    def __init__(self) -> None:
        authority = Authority.create("fuzz CA")
        issued = authority.issue("node", ["localhost"])
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(issued.chain_pem + issued.key_pem)
            file.flush()
            self.context.load_cert_chain(file.name)
        self.context.load_verify_locations(cadata=authority.pem)
        self.context.verify_mode = ssl.CERT_OPTIONAL
        self.context.sslobject_class = ServerSide
        self.context.sni_callback = keep_asked_name
        self.clock = TurnsClock()
        self.handshakes = Handshakes(AtOnce(), run_through)

    def principal(self, certificate: bytes | None) -> Principal:
        return ANONYMOUS


@cache
def tls() -> Tls:
    return Tls()


class Session:
    """One connection of a SASL_SSL listener, as the network sees it."""

    def __init__(self) -> None:
        self._tls = tls()
        world: Any = OneWorld(self._tls.clock)
        self._wheel = TimerWheel(self._tls.clock)
        self._logins = Logins(RULES, DISPATCHER, world, self._wheel)
        listener = Listener(world, ENDPOINT, DISPATCHER, LIMITS, INBOX, self._wheel, tls=self._tls, logins=self._logins)
        stream = listener._make_connection()
        assert isinstance(stream, TlsStream)
        self._stream, self._transport = stream, SentBytes()
        stream.connection_made(self._transport)
        (self._connection,) = listener.connections

    def feed(self, data: bytes, size: int) -> None:
        """Deliver the data in reads of this many bytes."""
        for pos in range(0, len(data), size):
            if self._stream.is_closing():
                return
            piece = data[pos : pos + size]
            self._stream.get_buffer(-1)[: len(piece)] = piece
            self._stream.buffer_updated(len(piece))
            self._tls.clock.run()

    def taken(self) -> bytes:
        """Return the bytes that have been sent since the last call."""
        sent = b"".join(self._transport.sent)
        self._transport.sent.clear()
        return sent

    def end(self) -> None:
        if self._logins.counts.succeeded == 0 and self._connection.principal != ANONYMOUS:
            raise Wrong("a principal without a login")
        if not self._stream.is_secured and self._connection.received_bytes_kept:
            raise Wrong("the connection has bytes that no handshake has secured")
        self._stream.connection_lost(None)
        self._tls.clock.run()
        equal(len(self._wheel), 0, "timers left")
        equal(len(self._tls.handshakes._begun), 0, "handshakes left")


class Client:
    """The client's side of TLS, in memory."""

    def __init__(self, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.maximum_version = version
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.end = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def hello(self) -> bytes:
        with suppress(ssl.SSLWantReadError):
            self.end.do_handshake()
        return self.outgoing.read()

    def shake_hands(self, session: Session) -> None:
        for _ in range(FLIGHTS_MAX):
            try:
                self.end.do_handshake()
            except ssl.SSLWantReadError:
                session.feed(self.outgoing.read(), 1 << 16)
                self.incoming.write(session.taken())
            else:
                session.feed(self.outgoing.read(), 1 << 16)
                return
        raise Wrong("the handshake does not end")

    def read(self, data: bytes) -> bytes:
        """Return the bytes that the server has sent, in plaintext."""
        self.incoming.write(data)
        found = bytearray()
        with suppress(ssl.SSLError):  # there are no more bytes, or an alert has come
            while piece := self.end.read(1 << 16):
                found += piece
        return bytes(found)


def handshake(data: bytes) -> None:
    """Feed the records in reads of the size that the first byte says: none of them is a login, and no timer or handshake is
    left.
    """
    if not data:
        return
    session = Session()
    session.feed(data[1:], 1 + data[0] * 8)
    session.end()


def handshake_seeds() -> Iterator[bytes]:
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        hello = Client(version).hello()
        yield b"\xff" + hello
        yield b"\x05" + hello
        yield b"\xff" + hello[: len(hello) // 2]
        yield b"\xff" + hello + b"\x15\x03\x03\0\2\1\0"  # an alert after it
        yield b"\xff" + hello + b"\x14\x03\x03\0\1\1" + b"\x17\x03\x03\0\x20" + bytes(32)
    yield b"\xff\x16\x03\x01\xff\xff" + bytes(100)
    yield b"\xffGET / HTTP/1.1\r\n\r\n"
    yield b"\xff" + bytes((0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 255, 255))


def tls_login(data: bytes) -> None:
    """The sizes of records and reads, which byte of the ciphertext is changed (0 for none), and a client's frames.

    The responses are the same as without TLS; after a changed record there are none."""
    if len(data) < 4:
        return
    session, client = Session(), Client()
    client.shake_hands(session)
    client.read(session.taken())
    frames, step = data[4:], 1 + data[0] * 4
    for pos in range(0, len(frames), step):
        client.end.write(frames[pos : pos + step])
    ciphertext = bytearray(client.outgoing.read())
    changed = int.from_bytes(data[2:4], "big")
    is_whole = not 0 < changed <= len(ciphertext)
    if not is_whole:
        ciphertext[changed - 1] ^= 0x55
    session.feed(bytes(ciphertext), 1 + data[1] * 8)
    found, expected = client.read(session.taken()), answers_to(frames)
    session.end()
    if is_whole:
        equal(found, expected, "answers over TLS")
    elif not expected.startswith(found):
        raise Wrong("answers to frames that were not authentic")


def tls_login_seeds() -> Iterator[bytes]:
    for number, seed in enumerate(login_seeds()):
        yield bytes((255, 255, 0, 0)) + seed
        yield bytes((number % 7, 3, 0, 0)) + seed
        yield bytes((255, 255, 0, 5 + number)) + seed


TARGETS = [
    Target("tls_handshake", handshake, handshake_seeds, bytes_max=1024, share=4),
    Target("tls_login", tls_login, tls_login_seeds, bytes_max=1024, share=1),
]
