"""The requests of a recording are sent again to a cluster, and its responses are compared with the recorded ones.

The replay takes the entries in their order. A request is sent when its time has come; at a recorded response the replay waits
until the cluster has answered that request too. So each request is sent after all responses that its client, or another one,
could have seen before it: at any speed, causes stay before their effects. A response is compared, and its names are learned,
before anything later is sent. If a response has an error that passes by itself, and the recorded one does not, the request is
repeated for some seconds, as a client does it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ProtocolError
from ottla.server.network.frames import Buffer as FrameBuffer
from ottla.server.network.wire import ChannelClosed
from ottla.server.world import World
from ottla.traffic.comparing import Comparison, FieldDifference, has_passing_error
from ottla.traffic.entries import Entry, EntryKind, read_opened
from ottla.traffic.identities import Identities
from ottla.traffic.messages import (
    CORRELATION_ID,
    FrameMessage,
    api_name,
    read_request_message,
    read_response_message,
)
from ottla.traffic.relay import RelaySide
from ottla.traffic.replay_report import Outcome, ReplayReport

#: The longest time for a response: a JoinGroup waits for a rebalance timeout, which is at most 5 minutes with Java's defaults.
RESPONSE_S_MAX = 60.0
#: A request with an error that passes is repeated for this long, and with this pause.
PASSING_S_MAX = 15.0
PASSING_PAUSE_S = 0.1
#: The most requests that wait for their recorded response. If the client has gone, there is none.
ASKED_MAX = 100_000
#: The replay uses its own login; the recorded one's bytes are not in the recording.
OWN_LOGIN = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})

#: Connects to the broker with a node id, or to any broker.
Connect = Callable[[int], Awaitable[RelaySide]]


class ServedVersions(NamedTuple):
    """The lowest and highest version of each API that the cluster serves."""

    of_apis: dict[int, tuple[int, int]]

    def serve(self, api_key: int, version: int) -> bool:
        low, high = self.of_apis.get(api_key, (0, -1))
        return low <= version <= high


class ReplayConnection:
    """The connection that replaces a recorded one."""

    def __init__(self, side: RelaySide) -> None:
        self._side = side
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        side.take = self._answered
        side.on_closed = self._lost

    def send(self, correlation_id: int, frame: bytes) -> asyncio.Future[bytes]:
        """Send a request; the future is the response, and is cancelled if the connection is lost."""
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if self._side.is_gone:
            future.cancel()
            return future
        self._waiting[correlation_id] = future
        self._side.write(len(frame).to_bytes(4, "big") + frame)
        return future

    def close(self) -> None:
        self._side.on_closed = None
        self._side.close()
        self._lost()

    def _answered(self, buf: FrameBuffer, pos: int, end: int) -> bytes:
        frame = bytes(memoryview(buf)[pos:end])
        if len(frame) >= CORRELATION_ID.size:
            future = self._waiting.pop(CORRELATION_ID.unpack_from(frame)[0], None)
            if future is not None and not future.done():
                future.set_result(frame)
        return b""

    def _lost(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            future.cancel()


class _Asked(NamedTuple):
    """A request that was sent, or the outcome of one that was not sent."""

    outcome: Outcome | None
    frame: bytes = b""
    response: asyncio.Future[bytes] | None = None
    connection: ReplayConnection | None = None
    sent_ns: int = 0


class Replayer:
    """One replay. Speed 1 is that of the recording; with 0 requests are sent as fast as the responses come."""

    def __init__(
        self, world: World, connect: Connect, versions: ServedVersions, report: ReplayReport, speed: float = 1.0
    ) -> None:
        self._world = world
        self._connect = connect
        self._versions = versions
        self._report = report
        self._speed = speed
        self._identities = Identities()
        self._nodes: dict[int, int] = {}
        self._connections: dict[int, ReplayConnection | None] = {}
        self._asked: dict[tuple[int, int], _Asked] = {}
        #: APIs with an error that did not pass: their later requests do not wait so long again.
        self._do_not_pass: set[int] = set()
        self._begun_ns = 0
        self._first_us = 0

    async def run(self, entries: AsyncIterator[Entry]) -> None:
        """Go through the entries."""
        self._begun_ns = self._world.clock.mono_ns()
        is_first = True
        try:
            async for entry in entries:
                if is_first:
                    self._first_us, is_first = entry.time_us, False
                await self._step(entry)
        finally:
            for connection in self._connections.values():
                if connection is not None:
                    connection.close()

    async def _step(self, entry: Entry) -> None:
        match entry.kind:
            case EntryKind.OPENED:
                self._nodes[entry.connection] = read_opened(entry.frame).node_id
            case EntryKind.REQUEST:
                await self._until_due(entry)
                if len(self._asked) >= ASKED_MAX:
                    del self._asked[next(iter(self._asked))]
                self._asked[entry.connection, entry.correlation_id] = await self._send(entry)
            case EntryKind.RESPONSE:
                await self._compare(entry)
            case EntryKind.CLOSED:
                self._nodes.pop(entry.connection, None)
                connection = self._connections.pop(entry.connection, None)
                if connection is not None:
                    connection.close()
            case EntryKind.LOST:
                self._report.lost(str(entry.frame, "utf-8", "replace"))

    async def _until_due(self, entry: Entry) -> None:
        if self._speed > 0:
            due_ns = self._begun_ns + int((entry.time_us - self._first_us) * 1000 / self._speed)
            left_s = (due_ns - self._world.clock.mono_ns()) / 1e9
            if left_s > 0:
                await asyncio.sleep(left_s)

    async def _send(self, entry: Entry) -> _Asked:
        key = entry.api_key
        if key in OWN_LOGIN or (entry.is_masked and not _is_noise(key)):
            return _Asked(Outcome.SECRET)
        try:
            message = read_request_message(entry.frame)
            self._identities.translate(message.body)
            frame = message.encoded(entry.frame)
        except ProtocolError:
            return _Asked(Outcome.UNREADABLE)
        if not self._versions.serve(key, entry.version):
            return _Asked(Outcome.NOT_SERVED)
        connection = await self._connection(entry.connection)
        if connection is None:
            return _Asked(Outcome.NOT_CONNECTED)
        sent_ns = self._world.clock.mono_ns()
        return _Asked(None, frame, connection.send(entry.correlation_id, frame), connection, sent_ns)

    async def _connection(self, number: int) -> ReplayConnection | None:
        if number not in self._connections:
            try:
                self._connections[number] = ReplayConnection(await self._connect(self._nodes.get(number, -1)))
            except (ChannelClosed, OSError) as failure:
                self._report.note(f"connection {number} could not be made: {failure}")
                self._connections[number] = None
        return self._connections[number]

    async def _compare(self, entry: Entry) -> None:
        asked = self._asked.pop((entry.connection, entry.correlation_id), None)
        if asked is None:
            return  # its request was lost, or was sent before the recording began
        name = api_name(entry.api_key)
        if asked.outcome is not None or asked.response is None:
            self._report.count(name, asked.outcome or Outcome.UNREADABLE)
            return
        frame = await self._frame(asked.response)
        took_us = (self._world.clock.mono_ns() - asked.sent_ns) // 1000
        if frame is None:
            self._differs(entry, name, [FieldDifference("", "a response", "none")])
            return
        try:
            recorded = read_response_message(entry.api_key, entry.version, entry.frame)
            got = read_response_message(entry.api_key, entry.version, frame)
            if not has_passing_error(recorded) and has_passing_error(got) and entry.api_key not in self._do_not_pass:
                got = await self._again(entry, asked, got)
        except ProtocolError:
            self._report.count(name, Outcome.UNREADABLE)
            return
        if has_passing_error(recorded) and not has_passing_error(got):
            self._report.count(name, Outcome.PASSING)
            return
        differences = Comparison(entry.api_key, self._identities).compare(recorded, got)
        if differences:
            self._differs(entry, name, differences)
        else:
            self._report.equal(name, took_us)

    async def _again(self, entry: Entry, asked: _Asked, got: FrameMessage) -> FrameMessage:
        """Return the response after the error has passed, or the last one."""
        assert asked.connection is not None, "it has answered"
        until_ns = self._world.clock.mono_ns() + int(PASSING_S_MAX * 1e9)
        while has_passing_error(got) and self._world.clock.mono_ns() < until_ns:
            await asyncio.sleep(PASSING_PAUSE_S)
            frame = await self._frame(asked.connection.send(entry.correlation_id, asked.frame))
            if frame is None:
                break
            got = read_response_message(entry.api_key, entry.version, frame)
        if has_passing_error(got):
            self._do_not_pass.add(entry.api_key)
        return got

    async def _frame(self, response: asyncio.Future[bytes]) -> bytes | None:
        """Return the response, or None if the connection is lost, or time is up."""
        await asyncio.wait([response], timeout=RESPONSE_S_MAX)
        return response.result() if response.done() and not response.cancelled() else None

    def _differs(self, entry: Entry, name: str, differences: list[FieldDifference]) -> None:
        where = f"{name} v{entry.version} #{entry.correlation_id} of connection {entry.connection}"
        self._report.different(name, where, differences)


def _is_noise(api_key: int) -> bool:
    """Return whether a masked request can be sent: noise in its records does not matter."""
    return api_key == ApiKey.PRODUCE
