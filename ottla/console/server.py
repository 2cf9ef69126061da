"""The console's process: the application of its pages, and uvicorn that serves it."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ottla.client.failures import Failure
from ottla.console.access import ConsoleAccess
from ottla.console.guard import Guard
from ottla.console.options import ConsoleOptions
from ottla.console.pages import (
    access,
    credentials,
    groups,
    overview,
    produce,
    reassignments,
    records,
    schemas,
    stories,
    tables,
    topics,
    transactions,
)
from ottla.console.record_view import visible
from ottla.console.roles import role_for
from ottla.console.sampler import Sampler
from ottla.console.site import FOLDER, Site, not_there
from ottla.server.address import Address
from ottla.web.rules import App
from ottla.web.server import HttpServer, listen

#: The most connections at one time. For a further one an idle connection is closed; if none is idle, the response is 503.
CONNECTIONS_MAX = 256
STOP_S_MAX = 2


async def health(request: Request) -> Response:
    """Respond that the console runs, whatever the state of the cluster."""
    return PlainTextResponse("ok\n")


async def not_found(request: Request, fault: Exception) -> Response:
    site: Site = request.app.state.site
    return site.problem(request, not_there(f"page {request.url.path}"))


async def no_cluster(request: Request, fault: Exception) -> Response:
    return PlainTextResponse(f"there is no page {visible(request.url.path)}: the clusters are at /\n", 404)


async def failed(request: Request, fault: Exception) -> Response:
    site: Site = request.app.state.site
    assert isinstance(fault, Failure)
    return site.problem(request, fault)


def permitted(route: Route) -> Route:
    """Return the route, for users who have the role that it requires."""
    roles = {method: role_for(method, route.path) for method in route.methods or ()}

    async def endpoint(request: Request) -> Any:
        site: Site = request.app.state.site
        needed = roles[request.method]
        if site.user(request).role < needed:
            return site.denied(request, needed)
        return await route.endpoint(request)

    return Route(route.path, endpoint, methods=list(roles))


ROUTES: tuple[Route, ...] = (
    *overview.ROUTES,
    *records.ROUTES,
    *produce.ROUTES,
    *topics.ROUTES,
    *groups.ROUTES,
    *schemas.ROUTES,
    *transactions.ROUTES,
    *tables.ROUTES,
    *stories.ROUTES,
    *access.ROUTES,
    *credentials.ROUTES,
    *reassignments.ROUTES,
    Route("/healthz", health),
)
#: The pages of the menu, in its order.
MENU = (
    ("/", "Overview"), ("/topics", "Topics"), ("/groups", "Groups"), ("/schemas", "Schemas"), ("/tables", "Tables"),
    ("/transactions", "Transactions"), ("/reassignments", "Reassignments"), ("/access", "Access"), ("/quotas", "Quotas"),
    ("/timeline", "Timeline"),
)  # fmt: skip
STATIC = Mount("/static", StaticFiles(directory=FOLDER / "static"))


@asynccontextmanager
async def application(*clusters: ConsoleOptions) -> AsyncIterator[App]:
    """Yield the pages of one cluster at "/", or those of several at "/c/NAME".

    While they are served, each cluster has a sampler.
    """
    names = [each.name for each in clusters]
    async with AsyncExitStack() as stack:
        apps = [await stack.enter_async_context(_pages(each, names)) for each in clusters]
        if len(apps) == 1:
            yield Guard(apps[0], clusters[0])
            return
        mounted = [Mount(f"/c/{name}", app) for name, app in zip(names, apps, strict=True)]
        first = Route("/", lambda request: RedirectResponse(f"/c/{names[0]}/"))
        routes = [STATIC, Route("/healthz", health), first, *mounted]
        yield Guard(Starlette(routes=routes, exception_handlers={404: no_cluster}), clusters[0])


@asynccontextmanager
async def _pages(options: ConsoleOptions, names: Sequence[str]) -> AsyncIterator[Starlette]:
    """Yield the pages of a cluster, with a sampler that runs while they are served."""
    async with ConsoleAccess(options) as clients:
        sampler = Sampler(clients.sampler, options.interval_s, options.admin)
        site = Site(options, clients, sampler, MENU, names)
        sampling = asyncio.create_task(sampler.run(), name="sampler")
        app = Starlette(routes=[*map(permitted, ROUTES), STATIC], exception_handlers={404: not_found, Failure: failed})
        app.state.site = site
        await asyncio.wait([sampling], timeout=0.01)
        try:
            yield app
        finally:
            await site.close()
            sampling.cancel()
            with suppress(asyncio.CancelledError):
                await sampling


def http_server(app: App, options: ConsoleOptions) -> HttpServer:
    """Return the server of the console's pages.

    Raises:
        Failure: its certificate cannot be used.
    """
    return HttpServer(
        app,
        CONNECTIONS_MAX,
        certificate=options.cert,
        key=options.key,
        stop_s=STOP_S_MAX,
    )


async def serve(clusters: Sequence[ConsoleOptions], ready: Callable[[str], None]) -> None:
    """Serve the pages of these clusters until SIGINT or SIGTERM. `ready` gets the URL once a browser can connect."""
    options = clusters[0]
    with ExitStack() as stack:
        listening = listen(options.host, options.port, "take another one: --listen HOST:0 for a free one")
        sockets = [stack.enter_context(sock) for sock in listening]
        url = f"{options.scheme}://{Address(options.host or 'localhost', sockets[0].getsockname()[1])}/"
        async with application(*clusters) as app:
            server = http_server(app, options)
            loop = asyncio.get_running_loop()
            serving = asyncio.create_task(server.serve(sockets))
            await asyncio.sleep(
                0
            )  # serving begins, and its signal handlers would end the process with SIGINT's exit code
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, _stop, server)
            ready(url)
            await serving


def _stop(server: HttpServer) -> None:
    if server.should_exit:  # at the second signal it does not wait for streams
        server.force_exit = True
        sys.stderr.write("ottla console: stopping now\n")
    server.should_exit = True
