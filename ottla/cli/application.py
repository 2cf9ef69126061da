"""Runs a command built with cyclopts: parses, makes an event loop and a cluster client, turns faults into exit codes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Literal, Never, TypeVar

from cyclopts import App, CycloptsError, Parameter

from ottla.cli.client.addresses import parse_bootstrap
from ottla.cli.client.cluster import ClusterClient
from ottla.cli.errors import OK, TIMED_OUT, USAGE, CommandFailed
from ottla.server.network.peer_security import PLAINTEXT
from ottla.server.world import RealWorld

DEFAULT_BOOTSTRAP = "localhost:9092"

T = TypeVar("T")


@Parameter(name="*")
@dataclass(frozen=True)
class Connection:
    """The address of the cluster and the timeout of the command."""

    bootstrap: Annotated[
        str | None,
        Parameter(name=["--bootstrap", "-b"], env_var="OTTLA_BOOTSTRAP", help="Brokers, HOST:PORT[,HOST:PORT...]."),
    ] = None
    config: Annotated[
        str | None,
        Parameter(name="--config", env_var="OTTLA_CONFIG", help="A file of client properties: security.protocol, ..."),
    ] = None
    timeout: Annotated[float, Parameter(name="--timeout", help="Seconds until giving up, with exit code 124.")] = 30.0


Output = Annotated[
    Literal["table", "json"], Parameter(name=["--output", "-o"], help="A table, or one JSON object per line.")
]

CONNECTION = Connection()


def run(app: App, arguments: Sequence[str]) -> int:
    """Parse and run; the exit code."""
    root = App(name="ottla")
    root.command(app)
    try:
        command, bound, _ = root.parse_args([*app.name, *arguments], exit_on_error=False, print_error=False)
    except CycloptsError as fault:
        verb = " ".join(["ottla", *(fault.command_chain or app.name)])
        raise CommandFailed(str(fault).strip(), f"`{verb} --help` shows the usage", USAGE) from None
    result = command(*bound.args, **bound.kwargs)
    if asyncio.iscoroutine(result):
        result = _run_coroutine(result)
    return result if isinstance(result, int) else OK


@asynccontextmanager
async def connect(connection: Connection, *, limited: bool = True) -> AsyncIterator[ClusterClient]:
    """Connect a cluster client for one command; `limited` commands end with exit code 124 after their timeout."""
    servers = connection.bootstrap
    properties: dict[str, str] = {}
    if connection.config is not None:
        # Not at the top: the tables of Kafka's properties and the mechanisms are slow to import.
        from ottla.cli.client.security import BOOTSTRAP, peer_security, read_client_properties

        properties = read_client_properties(connection.config)
        servers = servers or properties.get(BOOTSTRAP)
    servers = servers or DEFAULT_BOOTSTRAP
    bootstrap = parse_bootstrap(servers)
    if connection.timeout <= 0:
        raise CommandFailed(f"--timeout {connection.timeout:g} is not above 0", None, USAGE)
    real = RealWorld(asyncio.get_running_loop())
    try:
        security = PLAINTEXT if connection.config is None else peer_security(real.world, properties, connection.config)
    except CommandFailed:
        await real.close()
        raise
    cluster = ClusterClient(real.world, bootstrap, max(1, int(connection.timeout * 1000)), security)
    try:
        async with asyncio.timeout(connection.timeout if limited else None):
            yield cluster
    except TimeoutError:
        where = f"at {servers}"
        cause = f"gave up after {connection.timeout:g} s while {cluster.doing} {where}"
        raise CommandFailed(cause, "`ottla cluster health` may show why; --timeout waits longer", TIMED_OUT) from None
    finally:
        await cluster.close()
        await real.close()


def _run_coroutine(coroutine: Coroutine[object, Never, T]) -> T:
    return asyncio.run(coroutine)
