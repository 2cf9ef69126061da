"""The process of `ottla table serve`: sockets, rules and the HTTP server of a catalog, from start to end."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass

from starlette.responses import JSONResponse

from ottla.client.failures import Failure, Kind
from ottla.server.hosts import LOOPBACK, is_loopback
from ottla.server.listening import listening_sockets
from ottla.web.rules import App, HttpRules, Ruled
from ottla.web.server import HttpServer

#: Connections at one time: above it one that waits makes room, and 503 is the answer where all have requests.
CONNECTIONS_MAX = 256
KEEP_ALIVE_S = 30
#: Bodies of requests that are refused, and the form of a login.
BODIES = frozenset({"application/json", "application/x-www-form-urlencoded"})


@dataclass(frozen=True, slots=True)
class CatalogSettings:
    """The address of a catalog and what it is reached by."""

    host: str
    port: int
    certificate: str | None = None
    key: str | None = None
    allowed_hosts: tuple[str, ...] = ()

    def rules(self) -> HttpRules:
        """Return which requests it takes. At an address of this machine alone, where no login is needed, pages of browsers are the danger."""
        hosts = None
        if self.allowed_hosts or is_loopback(self.host):
            hosts = frozenset(name.lower() for name in (*LOOPBACK, self.host, *self.allowed_hosts))
        return HttpRules(hosts, BODIES)


async def serve(settings: CatalogSettings, application: App, ready: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM. `ready` gets the URL once a client can connect.

    Raises:
        Failure: the address is in use, or the certificate cannot be used.
    """
    server = http_server(application, settings)
    listening = _listen(settings)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _stop, server)
    scheme = "http" if settings.certificate is None else "https"
    host = f"[{settings.host.strip('[]')}]" if ":" in settings.host else settings.host
    ready(f"{scheme}://{host}:{listening[0].getsockname()[1]}")
    await server.serve(sockets=listening)


def http_server(application: App, settings: CatalogSettings) -> HttpServer:
    """Return the server of a catalog, behind the rules for requests of other sites.

    Raises:
        Failure: its certificate cannot be used.
    """
    try:
        return HttpServer(
            Ruled(application, settings.rules(), _refusal),
            CONNECTIONS_MAX,
            certificate=settings.certificate,
            key=settings.key,
            keep_alive_s=KEEP_ALIVE_S,
        )
    except OSError as fault:
        raise Failure(f"--cert and --key cannot be used: {fault}", None, Kind.WRONG) from None


def _refusal(status: int, text: str) -> App:
    row = {"message": text, "type": "ForbiddenException" if status == 403 else "BadRequestException", "code": status}
    answer: App = JSONResponse({"error": row}, status)
    return answer


def _listen(settings: CatalogSettings) -> list[socket.socket]:
    try:
        return listening_sockets(settings.host, settings.port)
    except OSError as fault:
        cause = f"{settings.host}:{settings.port} cannot be listened at: {fault.strerror or fault}"
        raise Failure(cause, "--listen takes another address") from None


def _stop(server: HttpServer) -> None:
    server.should_exit = True
