"""Each HTTP server of this project, started in the test's process as its program starts it, without a cluster behind it."""

from __future__ import annotations

import asyncio
import socket
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple, cast
from uuid import uuid4

from ottla.cli.commands import mirror as mirror_command
from ottla.console import server as console_server
from ottla.console.options import ConsoleOptions
from ottla.processes.admin import MachineAdmin
from ottla.registry import server as registry_server
from ottla.registry.access import Access
from ottla.server.address import Address
from ottla.server.admin import AdminServer
from ottla.server.metrics import Registry
from ottla.server.world import RealWorld, World
from ottla.tables import catalog_server
from ottla.tables.catalog_rest import CatalogApplication
from ottla.tables.directory_store import DirectoryStore
from ottla.tables.table_location import TableLocation
from ottla.testing import control_port
from ottla.testing.cluster import Cluster
from ottla.web.server import HttpServer
from tests.ottla.registry.memory import SELF, leader

HOST = "127.0.0.1"


@asynccontextmanager
async def _running(server: HttpServer) -> AsyncIterator[int]:
    with socket.create_server((HOST, 0)) as listening:
        task = asyncio.create_task(server.serve([listening]))
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = server.force_exit = True
            async with asyncio.timeout(20):
                await task


@asynccontextmanager
async def console() -> AsyncIterator[int]:
    options = ConsoleOptions("127.0.0.1:1", interval_s=60.0)
    async with (
        console_server.application(options) as app,
        _running(console_server.http_server(app, options)) as port,
    ):
        yield port


@asynccontextmanager
async def registry() -> AsyncIterator[int]:
    settings = registry_server.Settings(HOST, 0, SELF, "_schemas", "schema-registry", "BACKWARD", 10_000)
    async with (
        leader(checker=SimpleNamespace(close=_nothing)) as (_, application),
        _running(registry_server.http_server(application, settings)) as port,
    ):
        yield port


@contextmanager
def in_thread(server: HttpServer) -> Iterator[int]:
    """Run the server beside a blocking test. Yield its port."""
    with socket.create_server((HOST, 0)) as listening:
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])))
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = server.force_exit = True
            thread.join(20)


@asynccontextmanager
async def faults() -> AsyncIterator[int]:
    cluster = Cluster(1)  # it is not started
    try:
        async with _running(control_port.http_server(control_port.ControlPort(cluster))) as port:
            yield port
    finally:
        cluster.close()


async def _nothing() -> None:
    return


@asynccontextmanager
async def _world() -> AsyncIterator[World]:
    real = RealWorld(asyncio.get_running_loop())
    try:
        yield real.world
    finally:
        await real.close()


@asynccontextmanager
async def admin() -> AsyncIterator[int]:
    async with _world() as world, _started(AdminServer(world, HOST, 0, Registry(), lambda: (), lambda: ())) as port:
        yield port


@asynccontextmanager
async def machine() -> AsyncIterator[int]:
    async with _world() as world, _started(MachineAdmin(world, HOST, 0, [])) as port:
        yield port


@asynccontextmanager
async def _started(server: AdminServer) -> AsyncIterator[int]:
    await server.start()
    try:
        yield server.port
    finally:
        await server.stop()


@asynccontextmanager
async def mirror() -> AsyncIterator[int]:
    worker: Any = SimpleNamespace(stopped={})
    said: list[str] = []
    note, mirror_command.note = mirror_command.note, cast(Any, said.append)
    try:
        async with _world() as world, mirror_command._metrics(worker, Address(HOST, 0), world):
            (address,) = said
            yield int(address.rpartition(":")[2].partition("/")[0])
    finally:
        mirror_command.note = note


@asynccontextmanager
async def catalog() -> AsyncIterator[int]:
    with tempfile.TemporaryDirectory() as folder:
        application = catalog_application(folder)
        settings = catalog_server.CatalogSettings(HOST, 0)
        async with _running(catalog_server.http_server(application, settings)) as port:
            yield port


def catalog_application(folder: str, users: dict[str, str] | None = None) -> CatalogApplication:
    return CatalogApplication(TableLocation(DirectoryStore(folder)), Access(users), {}, lambda: uuid4().hex)


class Served(NamedTuple):
    """A server: the function that starts it, a path that it answers with 200, and the module with its bounds."""

    start: Callable[[], AbstractAsyncContextManager[int]]
    path: str
    #: The module that has its CONNECTIONS_MAX.
    connections_of: str
    #: Whether it accepts changes and shows data: then it is behind the rules for requests of other sites.
    is_ruled: bool


#: The servers by the file that makes each.
REAL = {
    "ottla/console/server.py": Served(console, "/healthz", "ottla.console.server", True),
    "ottla/registry/server.py": Served(registry, "/", "ottla.registry.server", True),
    "ottla/tables/catalog_server.py": Served(catalog, "/v1/config", "ottla.tables.catalog_server", True),
    "ottla/testing/control_port.py": Served(faults, "/", "ottla.testing.control_port", True),
    "ottla/cli/commands/mirror.py": Served(mirror, "/readyz", "ottla.server.admin", False),
    "ottla/processes/admin.py": Served(machine, "/healthz", "ottla.server.admin", False),
    "server/admin.py": Served(admin, "/", "ottla.server.admin", False),
}
