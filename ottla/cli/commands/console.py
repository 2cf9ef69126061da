"""The command `ottla console`: a web page for a Kafka cluster."""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated

from cyclopts import App, Parameter

from ottla.cli import contexts
from ottla.cli.application import BOOTSTRAP, CONNECTION, DEFAULT_BOOTSTRAP, ConnectionOptions, run
from ottla.cli.errors import need_extra
from ottla.client.admin_listeners import parse_admin
from ottla.client.cluster import parse_bootstrap
from ottla.client.connection import read_client_properties
from ottla.console.options import HOST, PORT, ConsoleOptions, read_login

app = App(
    name="console", version_flags=[], help="A web page for a Kafka cluster: look at it, and change it if you allow it."
)

main = partial(run, app)


@app.default
async def console(
    *,
    host: Annotated[str, Parameter(help="The address that browsers connect to; other machines need a login.")] = HOST,
    port: Annotated[int, Parameter(help="Its port; 0 takes a free one.")] = PORT,
    allow_changes: Annotated[
        bool, Parameter(negative="", help="Let pages change the cluster, each change after a confirmation.")
    ] = False,
    login_file: Annotated[str | None, Parameter(help="A file of lines USER:PASSWORD: browsers ask for one.")] = None,
    token_file: Annotated[str | None, Parameter(help="A file with a token, which is the password of any user.")] = None,
    no_login: Annotated[bool, Parameter(negative="", help="No login although --host is for other machines.")] = False,
    tls_cert: Annotated[str | None, Parameter(help="A PEM file: serve https.")] = None,
    tls_key: Annotated[str | None, Parameter(help="The PEM file of its key.")] = None,
    allowed_host: Annotated[
        list[str] | None, Parameter(negative="", help="A further name by which browsers reach the console.")
    ] = None,
    url: Annotated[
        str | None, Parameter(help="How browsers reach it through a proxy, such as https://console.example.com.")
    ] = None,
    admin: Annotated[
        list[str] | None,
        Parameter(negative="", help="ID@HOST:PORT of a broker's admin listener (ottla.admin.listener)."),
    ] = None,
    admin_port: Annotated[
        int | None, Parameter(help="The port of all brokers' admin listeners at their hosts.")
    ] = None,
    registry: Annotated[str | None, Parameter(help="The URL of a schema registry: its values are decoded.")] = None,
    registry_config: Annotated[
        str | None,
        Parameter(help="A file with the registry's login: basic.auth.user.info=NAME:PASSWORD, ssl.ca.location=FILE."),
    ] = None,
    interval: Annotated[float, Parameter(help="Seconds between two samples.")] = 5.0,
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Serve the console until Ctrl-C. It only looks, and only from this machine, unless options say otherwise."""
    need_extra("console", "the console")
    # Imported late: these are the extra's packages.
    from ottla.console.server import serve

    servers, path = connection.bootstrap, connection.config
    if servers is None and path is None:
        context = contexts.current(connection.context)
        servers, path = context.bootstrap, context.config
    properties = {} if path is None else read_client_properties(path)
    servers = servers or properties.get(BOOTSTRAP) or DEFAULT_BOOTSTRAP
    parse_bootstrap(servers)
    options = ConsoleOptions(
        bootstrap=servers,
        properties=properties,
        config=path,
        host=host,
        port=port,
        allow_changes=allow_changes,
        login=read_login(login_file, token_file),
        allowed_hosts=tuple(allowed_host or ()),
        url=url,
        tls_cert=tls_cert,
        tls_key=tls_key,
        admin=dict(map(parse_admin, admin or ())),
        admin_port=admin_port,
        registry=registry,
        registry_config=registry_config,
        interval_s=max(0.5, interval),
    )
    options.check(no_login)
    await serve(options, partial(_ready, servers, allow_changes))


def _ready(servers: str, allow_changes: bool, url: str) -> None:
    what = "looks at, and may change," if allow_changes else "looks at"
    print(f"{url}\n  {what} the cluster at {servers}; Ctrl-C stops", flush=True)
    if sys.stdout.isatty() and not allow_changes:
        print("  to change something: --allow-changes", flush=True)
