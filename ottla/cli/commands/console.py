"""The command `ottla console`: a web page for a Kafka cluster."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated

from ottla.cli.app import App, Parameter
from ottla.cli.application import CONNECTION, ConnectionOptions, chosen, run
from ottla.cli.errors import USAGE, CommandFailed, need_extra
from ottla.cli.shared_options import (
    ADMIN_HELP,
    ADMIN_PORT_HELP,
    HTTPS,
    REGISTRY_CONFIG_HELP,
    HttpsOptions,
    read_address,
)
from ottla.client.admin_listeners import AdminAddresses, parse_admin
from ottla.client.cluster import parse_bootstrap
from ottla.client.values import number_in
from ottla.console.options import LISTEN, ConsoleOptions, read_login
from ottla.local.running import admin_listeners

app = App("console", "A web page for a Kafka cluster: look at it, and change it if you allow it.")

main = partial(run, app)


@app.default
async def console(
    *,
    listen: Annotated[
        str, Parameter(help="HOST:PORT that browsers connect to, port 0 takes a free one; other machines need a login.")
    ] = LISTEN,
    allow_changes: Annotated[
        bool, Parameter(help="Let pages change the cluster, each change after a confirmation.")
    ] = False,
    login_file: Annotated[
        str | None,
        Parameter(
            help="A file of lines USER:ROLE:PASSWORD: browsers ask for one. Roles: viewer, operator, administrator."
        ),
    ] = None,
    token_file: Annotated[
        str | None, Parameter(help="A file with a token of an administrator: the password of any user.")
    ] = None,
    no_login: Annotated[bool, Parameter(help="No login although --listen is for other machines.")] = False,
    https: HttpsOptions = HTTPS,
    allowed_host: Annotated[
        list[str] | None, Parameter(help="A further name by which browsers reach the console.")
    ] = None,
    url: Annotated[
        str | None, Parameter(help="How browsers reach it through a proxy, such as https://console.example.com.")
    ] = None,
    admin: Annotated[
        list[str] | None,
        Parameter(help=ADMIN_HELP),
    ] = None,
    admin_port: Annotated[list[str] | None, Parameter(help=ADMIN_PORT_HELP)] = None,
    registry: Annotated[
        list[str] | None, Parameter(help="The URL of a schema registry: its schemas are shown and used.")
    ] = None,
    registry_config: Annotated[
        list[str] | None,
        Parameter(
            help=REGISTRY_CONFIG_HELP,
        ),
    ] = None,
    tables: Annotated[
        list[str] | None,
        Parameter(help="Where topics' tables lie, as ottla.table.location: a page shows how far they are."),
    ] = None,
    clusters: Annotated[
        list[str] | None,
        Parameter(
            help="A context of `ottla context`, several times for a switch between clusters. Then --admin, --admin-port, --registry, "
            "--registry-config and --tables are NAME=VALUE, for each of them.",
        ),
    ] = None,
    interval: Annotated[float, Parameter(help="Seconds between two samples.")] = 5.0,
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Serve the console until Ctrl-C. It only looks, and only from this machine, unless options say otherwise."""
    https.check()
    host, port = read_address("--listen", listen, is_own=True)
    need_extra("console", "the console")
    # Imported late: these are the packages of an extra.
    from ottla.console.server import serve

    names = list(dict.fromkeys(clusters or ()))
    if not names:
        reached = {"": _reached(connection.bootstrap, connection.config, connection.context)}
    elif len(names) == 1:
        reached = {"": _reached(None, None, names[0])}
    else:
        reached = {_checked(name): _reached(None, None, name) for name in names}
    common = ConsoleOptions(
        bootstrap="",
        host=host,
        port=port,
        allow_changes=allow_changes,
        login=read_login(login_file, token_file),
        allowed_hosts=tuple(allowed_host or ()),
        url=url,
        cert=https.cert,
        key=https.key,
        interval_s=max(0.5, interval),
    )
    admins, ports, urls, files, locations = (
        of_clusters(option, values, list(reached))
        for option, values in (
            ("--admin", admin),
            ("--admin-port", admin_port),
            ("--registry", registry),
            ("--registry-config", registry_config),
            ("--tables", tables),
        )
    )
    options = [
        replace(
            common,
            bootstrap=servers,
            name=name,
            properties=properties,
            config=path,
            admin=AdminAddresses(dict(map(parse_admin, admins[name])), _port(last(ports[name])), admin_listeners),
            registry=last(urls[name]),
            registry_config=last(files[name]),
            tables=last(locations[name]),
        )
        for name, (servers, properties, path) in reached.items()
    ]
    common.check(no_login)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s ottla console: %(message)s")
    logging.getLogger("ottla.console").setLevel(logging.INFO)
    await serve(options, partial(_ready, ", ".join(names) or options[0].bootstrap, allow_changes))


def _reached(servers: str | None, path: str | None, context: str | None) -> tuple[str, dict[str, str], str | None]:
    """Return the addresses, the properties and the file of a cluster, from the options or from a context."""
    servers, properties, path = chosen(servers, path, context)
    parse_bootstrap(servers)
    return servers, properties, path


def _checked(name: str) -> str:
    if not re.fullmatch(r"[a-zA-Z0-9._-]{1,60}", name):
        cause = f"the context {name!r} cannot stand in a link"
        raise CommandFailed(cause, "its name may have letters, digits, dots, underscores and dashes", USAGE)
    return name


def of_clusters(option: str, values: Sequence[str] | None, names: Sequence[str]) -> dict[str, list[str]]:
    """Return the values of an option by cluster. For one cluster they are plain values, for several NAME=VALUE.

    Raises:
        CommandFailed: a value names no cluster.
    """
    if len(names) == 1:
        return {names[0]: list(values or ())}
    found: dict[str, list[str]] = {name: [] for name in names}
    for text in values or ():
        name, _, value = text.partition("=")
        if name not in found or not value:
            cause = f"{option} {text!r} names none of the clusters {', '.join(names)}"
            raise CommandFailed(cause, f"for example {option} {names[0]}=VALUE", USAGE)
        found[name].append(value)
    return found


def last(values: Sequence[str]) -> str | None:
    return values[-1] if values else None


def _port(text: str | None) -> int | None:
    if text is None:
        return None
    number = number_in(text, 1, 65_535)
    if number is None:
        raise CommandFailed(f"--admin-port {text!r} is no port", None, USAGE)
    return number


def _ready(servers: str, allow_changes: bool, url: str) -> None:
    what = "looks at, and may change," if allow_changes else "looks at"
    print(f"{url}\n  {what} the cluster at {servers}; Ctrl-C stops", flush=True)
    if sys.stdout.isatty() and not allow_changes:
        print("  to change something: --allow-changes", flush=True)
