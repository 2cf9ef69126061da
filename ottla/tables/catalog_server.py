"""The process of `ottla table serve`: the sockets, rules and HTTP server of a catalog, from start to end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from starlette.responses import JSONResponse

from ottla.server.address import Address
from ottla.web.rules import App, HttpRules, Ruled
from ottla.web.server import HttpServer, listen

#: The most connections at one time. For a further one an idle connection is closed; if none is idle, the response is 503.
CONNECTIONS_MAX = 256
KEEP_ALIVE_S = 30
#: The largest body of a request: bodies are only login forms, or belong to rejected requests.
BODIES = frozenset({"application/json", "application/x-www-form-urlencoded"})


@dataclass(frozen=True, slots=True)
class CatalogSettings:
    """The address of a catalog, and how it is secured."""

    host: str
    port: int
    certificate: str | None = None
    key: str | None = None
    allowed_hosts: tuple[str, ...] = ()

    def rules(self) -> HttpRules:
        return HttpRules.at(self.host, [], self.allowed_hosts, BODIES)


async def serve(settings: CatalogSettings, application: App, ready: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM. `ready` gets the URL once a client can connect.

    Raises:
        Failure: the address is in use, or the certificate cannot be used.
    """
    server = http_server(application, settings)
    listening = listen(settings.host, settings.port, "--listen takes another address")
    server.stop_on_signals()
    scheme = "http" if settings.certificate is None else "https"
    ready(f"{scheme}://{Address(settings.host.strip('[]'), listening[0].getsockname()[1])}")
    await server.serve(sockets=listening)


def http_server(application: App, settings: CatalogSettings) -> HttpServer:
    """Return the server of a catalog, behind the rules for requests of other sites.

    Raises:
        Failure: its certificate cannot be used.
    """
    return HttpServer(
        Ruled(application, settings.rules(), _refusal),
        CONNECTIONS_MAX,
        certificate=settings.certificate,
        key=settings.key,
        keep_alive_s=KEEP_ALIVE_S,
    )


def _refusal(status: int, text: str) -> App:
    row = {"message": text, "type": "ForbiddenException" if status == 403 else "BadRequestException", "code": status}
    answer: App = JSONResponse({"error": row}, status)
    return answer
