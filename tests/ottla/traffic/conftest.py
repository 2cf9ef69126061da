"""A proxy in front of a broker that the test plays, and clients that are sockets of the test."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from ottla.server.address import Address
from ottla.server.clock import SystemClock, TimerHandle
from ottla.server.world import RealWorld
from ottla.traffic.entries import Opened
from ottla.traffic.proxy import Proxy, ProxyOptions
from tests.manual_clock import ManualClock

HOST = "127.0.0.1"
WAIT_S = 30


class Noted:
    """A tap that keeps everything it gets."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.responses: list[bytes] = []
        self.ends: list[Opened] = []
        self.closings: list[int] = []
        self.changed = asyncio.Event()

    def opened(self, connection: int, ends: Opened) -> None:
        self.ends.append(ends)

    def closed(self, connection: int) -> None:
        self.closings.append(connection)
        self.changed.set()

    def request(self, connection: int, api_key: int, version: int, correlation_id: int, frame: bytes) -> None:
        self.requests.append(bytes(frame))

    def response(self, connection: int, api_key: int, version: int, correlation_id: int, frame: bytes) -> None:
        self.responses.append(bytes(frame))


class Peer:
    """One end of a connection. It sends and receives complete frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames))

    async def receive(self) -> bytes:
        async with asyncio.timeout(WAIT_S):
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            return await self.reader.readexactly(size)

    async def is_closed(self) -> bool:
        async with asyncio.timeout(WAIT_S):
            try:
                return not await self.reader.read(1)
            except ConnectionError:
                return True


class Stage:
    """The proxy, its tap, and the connections of the broker that the test plays."""

    def __init__(self) -> None:
        self.tap = Noted()
        self.notes: list[str] = []
        self.brokers: asyncio.Queue[Peer] = asyncio.Queue()
        self.broker_port = 0
        self.port = 0
        self.proxy: Proxy
        self.clock = TimeoutClock(asyncio.get_running_loop())

    async def client(self, port: int | None = None) -> Peer:
        return Peer(*await asyncio.open_connection(HOST, port or self.port))

    async def broker(self) -> Peer:
        async with asyncio.timeout(WAIT_S):
            return await self.brokers.get()


class TimeoutClock(SystemClock):
    """The loop's time, except for timers due in a second or later: those run when the test says so."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._late = ManualClock()

    def mono_ms(self) -> int:
        return super().mono_ms() + self._late.now_ms

    def call_later(self, delay_ms: float, callback: Callable[[], object]) -> TimerHandle:
        return (super() if delay_ms < 1_000 else self._late).call_later(delay_ms, callback)

    def advance(self, ms: int) -> None:
        self._late.advance(ms)


@asynccontextmanager
async def playing(tls: ssl.SSLContext | None = None) -> AsyncIterator[Stage]:
    stage = Stage()

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stage.brokers.put_nowait(Peer(reader, writer))

    real = RealWorld(asyncio.get_running_loop())
    server = await asyncio.start_server(accepted, HOST, 0)
    try:
        stage.broker_port = server.sockets[0].getsockname()[1]
        options = ProxyOptions(Address(HOST, 0), Address(HOST, stage.broker_port), tls=tls)
        world = replace(real.world, clock=stage.clock)
        proxy = Proxy(world, options, stage.tap, stage.notes.append)
        stage.proxy = proxy
        stage.port = await proxy.start()
        yield stage
        await proxy.close()
    finally:
        server.close()
        await real.tasks.close()
        await real.close()


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with playing() as made:
        yield made
