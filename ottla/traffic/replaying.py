"""The requests of a recording are sent again to a cluster, and its responses are compared with the recorded ones.

The replay takes the entries in their order. A request is sent when its time has come; at a recorded response the replay waits
until the cluster has answered that request too. So each request is sent after all responses that its client, or another one,
could have seen before it: at any speed, causes stay before their effects. A response is compared, and its names are learned,
before anything later is sent.

A request is sent to the brokers that lead or coordinate what it is about in this cluster (routing.py). These are several if its partitions
have other leaders than in the recording, and their responses are compared as one. If a response has an error that passes by itself, and the
recorded one does not, the request is repeated for some seconds, as a client does it: to the brokers that lead its partitions by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple, Protocol

from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ProtocolError
from ottla.server.network.frames import Buffer as FrameBuffer
from ottla.server.network.wire import ChannelClosed
from ottla.server.world import World
from ottla.traffic.comparing import Comparison, FieldDifference, has_passing_error
from ottla.traffic.entries import Entry, EntryKind, read_opened
from ottla.traffic.fetch_sessions import ReplayedSession, ReplayedSessions
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
from ottla.traffic.routing import RoutedCluster, RoutedPart, Routes, merge

#: The longest time for a response: a JoinGroup waits for a rebalance timeout, which is at most 5 minutes with Java's defaults.
RESPONSE_S_MAX = 60.0
#: A request with an error that passes is repeated for this long, and with this pause.
PASSING_S_MAX = 15.0
PASSING_PAUSE_S = 0.1
#: The most requests that wait for their recorded response. If the client has gone, there is none.
ASKED_MAX = 100_000
#: The replay uses its own login; the recorded one's bytes are not in the recording.
OWN_LOGIN = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})

#: The versions of Fetch with sessions (KIP-227), and the epoch of a request outside of one.
SESSIONS_FROM, NO_SESSION = 7, -1


class ServedVersions(NamedTuple):
    """The lowest and highest version of each API that the cluster serves."""

    of_apis: dict[int, tuple[int, int]]

    def serve(self, api_key: int, version: int) -> bool:
        low, high = self.of_apis.get(api_key, (0, -1))
        return low <= version <= high


class ReplayTarget(RoutedCluster, Protocol):
    """The cluster of a replay."""

    def in_place_of(self, node: int) -> int:
        """Return the broker in place of a recorded one; -1: not known."""

    async def connect(self, node: int) -> RelaySide:
        """Connect to a broker. Raises ChannelClosed or OSError."""


class ReplayConnection:
    """The connection to one broker in place of a recorded one."""

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


class _Sent(NamedTuple):
    """A request, or a part of one, that a broker has been sent."""

    part: RoutedPart
    response: asyncio.Future[bytes]


class _Asked(NamedTuple):
    """A request that was sent, or the outcome of one that was not sent."""

    outcome: Outcome | None
    entry: Entry
    message: FrameMessage | None = None
    sent: tuple[_Sent, ...] = ()
    session: ReplayedSession | None = None
    sent_ns: int = 0


class _NotConnected(Exception):
    """A broker cannot be reached; the report has said so."""


class Replayer:
    """One replay. Speed 1 is that of the recording; with 0 requests are sent as fast as the responses come."""

    def __init__(
        self, world: World, target: ReplayTarget, versions: ServedVersions, report: ReplayReport, speed: float = 1.0
    ) -> None:
        self._world = world
        self._target = target
        self._routes = Routes(target)
        self._sessions = ReplayedSessions()
        self._versions = versions
        self._report = report
        self._speed = speed
        self._identities = Identities()
        self._nodes: dict[int, int] = {}
        #: Connections by the recorded one and by broker: as many as its requests belong to.
        self._connections: dict[int, dict[int, ReplayConnection | None]] = {}
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
            for number in list(self._connections):
                self._close(number)

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
                self._close(entry.connection)
            case EntryKind.LOST:
                self._report.lost(str(entry.frame, "utf-8", "replace"))

    async def _until_due(self, entry: Entry) -> None:
        if self._speed > 0:
            due_ns = self._begun_ns + int((entry.time_us - self._first_us) * 1000 / self._speed)
            left_s = (due_ns - self._world.clock.mono_ns()) / 1e9
            if left_s > 0:
                await asyncio.sleep(left_s)

    def _close(self, number: int) -> None:
        for connection in self._connections.pop(number, {}).values():
            if connection is not None:
                connection.close()

    async def _send(self, entry: Entry) -> _Asked:
        key = entry.api_key
        if key in OWN_LOGIN or (entry.is_masked and not _is_noise(key)):
            return _Asked(Outcome.SECRET, entry)
        try:
            message = read_request_message(entry.frame)
            self._identities.translate(message.body)
            if not self._versions.serve(key, entry.version):
                return _Asked(Outcome.NOT_SERVED, entry)
            session = self._session(entry, message)
            sent = await self._ask(entry, message, session)
        except ProtocolError:
            return _Asked(Outcome.UNREADABLE, entry)
        except _NotConnected:
            return _Asked(Outcome.NOT_CONNECTED, entry)
        return _Asked(None, entry, message, sent, session, self._world.clock.mono_ns())

    def _session(self, entry: Entry, message: FrameMessage) -> ReplayedSession | None:
        if entry.api_key != ApiKey.FETCH or entry.version < SESSIONS_FROM:
            return None
        is_outside = message.body.session_id == 0 and message.body.session_epoch == NO_SESSION
        return None if is_outside else self._sessions.of(message.body.session_id)

    async def _ask(self, entry: Entry, message: FrameMessage, session: ReplayedSession | None) -> tuple[_Sent, ...]:
        """Send a request to the brokers that it belongs to."""
        otherwise = self._target.in_place_of(self._nodes.get(entry.connection, -1))
        if session is None:
            parts = await self._routes.parts(entry.api_key, message.body, otherwise)
        else:
            parts = await session.parts(self._routes, message.body, otherwise)
        sent = []
        for part in parts:
            connection = await self._connection(entry.connection, part.node)
            frame = message._replace(body=part.body).encoded(entry.frame)
            sent.append(_Sent(part, connection.send(entry.correlation_id, frame)))
        return tuple(sent)

    async def _connection(self, number: int, node: int) -> ReplayConnection:
        known = self._connections.setdefault(number, {})
        if node not in known:
            try:
                known[node] = ReplayConnection(await self._target.connect(node))
            except (ChannelClosed, OSError) as failure:
                self._report.note(f"connection {number} could not be made: {failure}")
                known[node] = None
        connection = known[node]
        if connection is None:
            raise _NotConnected
        return connection

    async def _compare(self, entry: Entry) -> None:
        asked = self._asked.pop((entry.connection, entry.correlation_id), None)
        if asked is None:
            return  # its request was lost, or was sent before the recording began
        name = api_name(entry.api_key)
        if asked.outcome is not None or asked.message is None:
            self._report.count(name, asked.outcome or Outcome.UNREADABLE)
            return
        try:
            recorded = read_response_message(entry.api_key, entry.version, entry.frame)
            waits = not has_passing_error(recorded) and entry.api_key not in self._do_not_pass
            got, took_us = await self._response(asked, asked.message, waits=waits)
        except ProtocolError:
            self._report.count(name, Outcome.UNREADABLE)
            return
        except _NotConnected:
            self._report.count(name, Outcome.NOT_CONNECTED)
            return
        if got is None:
            self._differs(entry, name, [FieldDifference("", "a response", "none")])
            return
        if asked.session is not None:
            self._sessions.learn(recorded.body.session_id, asked.session)
        if has_passing_error(recorded) and not has_passing_error(got):
            self._report.count(name, Outcome.PASSING)
            return
        differences = Comparison(entry.api_key, self._identities).compare(recorded, got)
        if differences:
            self._differs(entry, name, differences)
        else:
            self._report.equal(name, took_us)

    async def _response(self, asked: _Asked, message: FrameMessage, *, waits: bool) -> tuple[FrameMessage | None, int]:
        """Return the brokers' responses as one, or None if one of them has not come, and how long the first ones took.

        `waits`: with an error that passes it is asked for again. Of a request in parts only those with an error are.
        """
        until_ns = self._world.clock.mono_ns() + int(PASSING_S_MAX * 1e9)
        entry = asked.entry
        sent, took_us = asked.sent, 0
        got: list[FrameMessage] = []
        while True:
            passing: list[tuple[_Sent, FrameMessage]] = []
            for each in sent:
                frame = await self._frame(each.response)
                if frame is None:
                    return None, 0
                response = read_response_message(entry.api_key, entry.version, frame)
                if asked.session is not None:
                    asked.session.answered(each.part, response.body.session_id)
                if waits and has_passing_error(response):
                    passing.append((each, response))
                else:
                    got.append(response)
            took_us = took_us or (self._world.clock.mono_ns() - asked.sent_ns) // 1000
            if not passing or self._world.clock.mono_ns() >= until_ns:
                break
            await asyncio.sleep(PASSING_PAUSE_S)
            self._routes.forget()
            if asked.session is None:
                retried = [message._replace(body=each.part.body) for each, _ in passing]
                sent = tuple([again for each in retried for again in await self._ask(entry, each, None)])
            else:
                asked.session.begin_again()
                got.clear()
                sent = await self._ask(entry, message, asked.session)
        if passing:
            self._do_not_pass.add(entry.api_key)
        got += [response for _, response in passing]
        for other in got[1:]:
            merge(got[0].body, other.body)
        return got[0], took_us

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
