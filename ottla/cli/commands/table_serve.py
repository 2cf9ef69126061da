"""The command `ottla table serve`: the tables of a location by Iceberg's REST catalog API."""

from __future__ import annotations

import logging
import secrets
from functools import partial
from typing import Annotated

from ottla.cli.app import Parameter
from ottla.cli.errors import need_extra
from ottla.cli.output import note
from ottla.cli.shared_options import HTTPS, HttpsOptions, read_address
from ottla.cli.table_options import At, StoreOptions, location_of, store_options
from ottla.client.failures import Failure, Kind
from ottla.server.hosts import is_loopback

TOKEN_BYTES = 32


async def serve(
    *,
    at: At = None,
    listen: Annotated[str, Parameter(help="HOST:PORT; port 0 takes a free one.")] = "localhost:8181",
    allowed_host: Annotated[
        list[str] | None,
        Parameter(
            help="A name by which engines reach it: others are refused, as at localhost, where any web page could point its name.",
        ),
    ] = None,
    https: HttpsOptions = HTTPS,
    users: Annotated[
        str | None,
        Parameter(help="A file with lines NAME: PASSWORD, as that of `ottla registry`. Engines need a login."),
    ] = None,
    option: StoreOptions = None,
) -> None:
    """Serve the Iceberg tables of a location to engines by one URL, until interrupted. It only reads.

    An engine reads data files from the store itself, with credentials of its own.
    """
    https.check()
    host, port = read_address("--listen", listen, is_own=True)
    location, options = location_of(at), store_options(option)
    need_extra("tables", "ottla table serve")
    from ottla.registry.access import Access, read_users
    from ottla.tables.catalog_rest import CatalogApplication
    from ottla.tables.catalog_server import CatalogSettings
    from ottla.tables.catalog_server import serve as run_server
    from ottla.tables.store import StoreFailure
    from ottla.tables.table_location import TableLocation, iceberg_options, open_store

    if users is None and not is_loopback(host):
        note(f"everybody who reaches {listen} may see which tables there are: --users names a file of logins")
    try:
        access = Access(None if users is None else read_users(_read(users)))
    except (ValueError, OSError) as fault:
        raise Failure(f"--users {users}: {fault}", None, Kind.WRONG) from None
    public = iceberg_options({name: options[name] for name in ("endpoint", "region") if name in options})
    try:
        tables = TableLocation(open_store(location, options))
        tables.topics()  # an error of the store is reported now, not at the first request
    except StoreFailure as fault:
        raise Failure(str(fault)) from fault
    application = CatalogApplication(tables, access, public, partial(secrets.token_urlsafe, TOKEN_BYTES))
    logging.basicConfig(level=logging.WARNING, format="ottla table serve: %(message)s")
    await run_server(
        CatalogSettings(host, port, https.cert, https.key, tuple(allowed_host or ())),
        application,
        partial(_ready, tables.store.url),
    )


def _ready(location: str, url: str) -> None:
    print(f"tables of {location} at {url}", flush=True)


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
