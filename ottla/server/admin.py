"""The admin listener: `/healthz`, `/readyz` and `/metrics` over plain HTTP, for orchestrators and Prometheus; and a node's other pages.

It runs on the node's own event loop, so that a response proves that the loop is not blocked. A scrape is made in slices
(metrics.py), one at a time, and its result is shared by all requests that arrived meanwhile. It is not a web server: it
has GET and HEAD, no bodies, no TLS, no authentication. It belongs on an address that only operators can reach, and is off
unless configured.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias, cast

from ottla.server.address import parse_address
from ottla.server.clock import TimerHandle
from ottla.server.hosts import is_loopback, is_of_this_network
from ottla.server.listening import of_every_family
from ottla.server.metrics import CONTENT_TYPE, Registry, scrape
from ottla.server.transport import Server
from ottla.server.world import World

log = logging.getLogger(__name__)

#: A request line with headers; kube-probe and Prometheus send a few hundred bytes.
REQUEST_BYTES_MAX = 8192
CONNECTIONS_MAX = 64
#: Prometheus keeps its connection from scrape to scrape, by default a minute apart.
IDLE_TIMEOUT_MS = 90_000
REASONS = {
    200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed", 431: "Request Header Fields Too Large",
    500: "Internal Server Error", 503: "Service Unavailable",
}  # fmt: skip
TEXT = "text/plain; charset=utf-8"
JSON_LINES = "application/x-ndjson; charset=utf-8"


class Check(NamedTuple):
    """One condition of health or readiness, with its text for operators."""

    name: str
    passed: bool
    why: str = ""


Checks = Callable[[], Iterable[Check]]


class Answer(NamedTuple):
    status: int
    body: bytes
    content_type: str = TEXT


def verdict(checks: Iterable[Check]) -> Answer:
    """Return status 200 if all checks passed, and a line for each check."""
    found = list(checks)
    lines = [
        f"[{'+' if check.passed else '-'}] {check.name}{f': {check.why}' if check.why else ''}\n" for check in found
    ]
    return Answer(200 if all(check.passed for check in found) else 503, "".join(lines).encode())


class AdminServer:
    """The admin server of a node: start, stop, and the bound port."""

    def __init__(
        self,
        world: World,
        host: str,
        port: int,
        registry: Registry,
        live: Checks,
        ready: Checks,
        pages: Mapping[str, Page] | None = None,
    ) -> None:
        """Take in `pages` the node's further pages by their paths, besides the three that each server has."""
        self.world = world
        self._pages = dict(pages or {})
        #: The connections, in the order in which they last sent a request.
        self.connections: dict[AdminConnection, None] = {}
        self.host = host
        self._wanted_port = port
        self._registry = registry
        self._live = live
        self._ready = ready
        self._server: Server | None = None
        self._scraping: asyncio.Task[bytes] | None = None

    @property
    def port(self) -> int:
        assert self._server is not None, "not started"
        return self._server.port

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: its host is not of this machine, or its port is in use.
        """
        host = of_every_family(self.host)
        try:
            self._server = await self.world.network.listen(host, self._wanted_port, lambda: AdminConnection(self))
        except OSError as failure:
            where = f"{self.host}:{self._wanted_port}"
            raise OSError(f"cannot listen on ottla.admin.listener {where}: {failure.strerror or failure}") from failure
        await self._server.begin()
        addresses = ", ".join(self._server.addresses)
        log.info("Admin listener on http://%s:%d (at %s)", host or "0.0.0.0", self.port, addresses)

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.close()
        for connection in list(self.connections):
            connection.close()

    def knows(self, host: str | None) -> bool:
        """Return whether the Host header names this listener.

        It does not if a page of another site has pointed its name at a listener that only this machine reaches. A probe may
        have no Host.
        """
        return host is None or not is_loopback(self.host) or is_of_this_network(host, self.host)

    async def answer(self, path: str) -> Answer:
        if path == "/healthz":
            return verdict(self._live())
        if path == "/readyz":
            return verdict(self._ready())
        if path == "/metrics":
            return Answer(200, await self._metrics(), CONTENT_TYPE)
        paths = ["/healthz", "/readyz", "/metrics", *self._pages]
        if path == "/":
            return Answer(200, "".join(f"{each}\n" for each in paths).encode())
        return Answer(404, f"there are {', '.join(paths[:-1])} and {paths[-1]}\n".encode())

    async def respond(self, request: HttpRequest) -> Answer:
        page = self._pages.get(request.path)
        return await self.answer(request.path) if page is None else page(request)

    async def _metrics(self) -> bytes:
        if self._scraping is None or self._scraping.done():
            self._scraping = self.world.spawn(scrape(self._registry, self.world.clock), "metrics scrape")
        # Shielded: a client that disconnects must not cancel the scrape of the others.
        return await asyncio.shield(self._scraping)


class AdminConnection(asyncio.Protocol):
    """Serves one request after the other. Bytes that arrive meanwhile wait in the buffer."""

    def __init__(self, server: AdminServer) -> None:
        self._server = server
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._idle: TimerHandle | None = None
        self._unread = False  # a response, or a part of it
        self._peer = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's transport is no subclass of it
        connections = self._server.connections
        if len(connections) >= CONNECTIONS_MAX:
            # The newest one may be the orchestrator's probe, so the connection that has waited longest is closed.
            next((each for each in connections if each.is_idle), next(iter(connections))).abort()
        self._transport = transport
        self._peer = str((transport.get_extra_info("peername") or ("",))[0])
        transport.set_write_buffer_limits(0)
        connections[self] = None
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.pop(self, None)
        self._transport = None
        if self._idle is not None:
            self._idle.cancel()
        if self._task is not None:
            self._task.cancel()

    @property
    def is_idle(self) -> bool:
        """Return True if no request is being answered."""
        return self._task is None

    def pause_writing(self) -> None:
        """The client does not read. Its next request waits until it has read the response, at most for the idle timeout."""
        self._unread = True

    def resume_writing(self) -> None:
        self._unread = False
        if self._task is None and self._buffer:
            self._next()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._task is None and not self._unread:
            self._next()
        elif len(self._buffer) > REQUEST_BYTES_MAX:
            self.close()  # no client pipelines that much

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once: `close` waits for a client that does not read."""
        self._server.connections.pop(self, None)
        if self._transport is not None:
            self._transport.abort()

    def _wait(self) -> None:
        connections = self._server.connections
        if connections.pop(self, self) is None:
            connections[self] = None
        if self._idle is not None:
            self._idle.cancel()
        self._idle = self._server.world.clock.call_later(IDLE_TIMEOUT_MS, self.abort)

    def _next(self) -> None:
        """Begin the next complete request in the buffer, if there is one."""
        end = self._buffer.find(b"\r\n\r\n")
        if max(end, len(self._buffer) if end < 0 else 0) > REQUEST_BYTES_MAX:
            self._write(Answer(431, b"too long\n"), head=False, keep=False)
            return
        if end < 0:
            return
        head = bytes(self._buffer[:end])
        del self._buffer[: end + 4]
        request = read_request(head)
        if isinstance(request, HttpRequest):
            request = request._replace(peer=self._peer)
        if isinstance(request, HttpRequest) and not self._server.knows(request.host):
            request = Answer(400, b"this listener is not known by that name\n")
        if isinstance(request, Answer):
            self._write(request, head=False, keep=False)
            return
        self._task = self._server.world.spawn(self._serve(request), "admin request")

    async def _serve(self, request: HttpRequest) -> None:
        try:
            answer = await self._server.respond(request)
        except Exception:
            log.exception("The admin listener failed to answer %s", request.path)
            answer = Answer(500, b"see the node's log\n")
        self._task = None
        self._write(answer, head=request.head, keep=request.keep)
        if self._buffer and not self._unread and self._transport is not None and not self._transport.is_closing():
            self._next()

    def _write(self, answer: Answer, *, head: bool, keep: bool) -> None:
        transport = self._transport
        if transport is None:
            return
        lines = [
            f"HTTP/1.1 {answer.status} {REASONS[answer.status]}",
            f"Content-Type: {answer.content_type}",
            f"Content-Length: {len(answer.body)}",
            "Cache-Control: no-store",
            f"Connection: {'keep-alive' if keep else 'close'}",
        ]
        transport.write("\r\n".join([*lines, "", ""]).encode() + (b"" if head else answer.body))
        if keep:
            self._wait()
        else:
            transport.close()


class HttpRequest(NamedTuple):
    path: str
    head: bool
    keep: bool
    host: str | None = None
    #: The text after the "?", as it was sent.
    query: str = ""
    #: The address of the client.
    peer: str = ""


Page: TypeAlias = Callable[[HttpRequest], Answer]


def is_local(request: HttpRequest, host: str) -> bool:
    """Return whether the client is on this machine, and the request does not come from a web page whose name points at the
    listener's `host` (server/hosts.py).
    """
    is_known_here = request.host is None or is_of_this_network(request.host, host)
    return is_known_here and is_loopback(request.peer.removeprefix("::ffff:"))


def read_request(head: bytes) -> HttpRequest | Answer:
    """Parse a request's head (without its empty line); return the request, or the error response."""
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[1].startswith("/"):
        return Answer(400, b"this is not HTTP/1.1\n")
    headers = {
        name.strip().lower(): value.strip().lower() for name, _, value in (line.partition(":") for line in lines[1:])
    }
    if words[0] not in ("GET", "HEAD"):
        return Answer(405, b"GET or HEAD\n")
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        return Answer(400, b"no body is expected\n")
    connection = headers.get("connection", "")
    keep = connection != "close" if words[2] == "HTTP/1.1" else connection == "keep-alive"
    path, _, query = words[1].partition("?")
    return HttpRequest(path, words[0] == "HEAD", keep, headers.get("host"), query)


def read_address(text: str) -> tuple[str, int]:
    """Parse `ottla.admin.listener`: HOST:PORT, or a port alone for all addresses. Raises ValueError for anything else."""
    text = text.strip().rstrip("/")
    return parse_address(f":{text}" if text.isdecimal() else text, any_host=True, port_min=0)
