"""The command `ottla registry`: an instance of the schema registry."""

from __future__ import annotations

import getpass
import logging
import socket
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Annotated, Literal, TypeVar

from ottla.cli.app import App, Parameter
from ottla.cli.application import CONNECTION, ConnectionOptions, connect, run
from ottla.cli.errors import USAGE, CommandFailed, need_extra
from ottla.cli.output import note
from ottla.cli.shared_options import HTTPS, HttpsOptions, read_address
from ottla.client.cluster import ClusterClient
from ottla.registry.election import SESSION_MS, Identity
from ottla.registry.members import check_secret
from ottla.server.hosts import is_loopback

T = TypeVar("T")

app = App("registry", "Serve schemas of Avro, JSON Schema and Protobuf (Confluent's REST API).")

main = partial(run, app)

Level = Literal["none", "backward", "forward", "full", "backward_transitive", "forward_transitive", "full_transitive"]


@app.default
async def registry(
    *,
    listen: Annotated[
        str, Parameter(help="HOST:PORT; port 0 takes a free one.", env_var="OTTLA_REGISTRY_LISTEN")
    ] = "localhost:8081",
    advertise: Annotated[
        str | None, Parameter(help="HOST:PORT by which the other instances reach this one. Default: that of --listen.")
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        Parameter(
            help="A name by which clients reach it: others are refused, as at localhost, where any web page could point its name.",
        ),
    ] = None,
    topic: Annotated[str, Parameter(help="The compacted topic that holds the schemas.")] = "_schemas",
    group: Annotated[str, Parameter(help="Instances of one group elect a leader, which writes.")] = "schema-registry",
    session_timeout_ms: Annotated[
        int,
        Parameter(help="A leader that is silent for so long is replaced (Confluent's kafkagroup.session.timeout.ms)."),
    ] = SESSION_MS,
    leader: Annotated[bool, Parameter(help="This instance only follows: it is never the leader.")] = True,
    compatibility: Annotated[Level, Parameter(help="Level of subjects that have none set.")] = "backward",
    https: HttpsOptions = HTTPS,
    ca: Annotated[str | None, Parameter(help="Certificates in PEM that the leader's is checked by.")] = None,
    users: Annotated[
        str | None, Parameter(help="A file with lines NAME: PASSWORD. Clients need one of these logins.")
    ] = None,
    acl: Annotated[
        str | None, Parameter(help="A file with lines USER SUBJECTS OPERATIONS: read, write, delete, config, all.")
    ] = None,
    secret_file: Annotated[
        str | None,
        Parameter(
            help="A file with a secret of 16 bytes or more, the same at all instances, by which they know each other."
        ),
    ] = None,
    hash_password: Annotated[
        bool, Parameter(help="Read a password, print what --users takes in its place, and stop.")
    ] = False,
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Serve until interrupted. Its records are those of Confluent's registry, which can serve the same topic before or after."""
    from ottla.registry import access

    if hash_password:
        print(access.hashed(getpass.getpass() if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")))
        return
    https.check()
    if not 0 < session_timeout_ms < 2**31:
        raise CommandFailed(f"--session-timeout-ms {session_timeout_ms} is no time", None, USAGE)
    if acl is not None and users is None:
        raise CommandFailed("--acl needs --users", "permissions are for the names of logins", USAGE)
    host, port = read_address("--listen", listen, is_own=True)
    reached = read_address("--advertise", advertise, is_own=True) if advertise is not None else (_own_name(host), port)
    need_extra("registry", "the registry")
    # Imported late: no other command needs HTTP, TLS and the server.
    from ottla.registry import server

    identity = Identity("https" if https.cert else "http", *reached, leader)
    settings = server.Settings(
        host, port, identity, topic, group, compatibility.upper(), session_timeout_ms, https.cert, https.key, ca
    )
    settings = replace(settings, allowed_hosts=tuple(allowed_host or ()))
    if users is None and not is_loopback(host):
        note(f"everybody who reaches {listen} may register and delete schemas: --users names a file of logins")
    try:
        if secret_file is not None:
            settings = replace(settings, secret=check_secret(_read("--secret-file", secret_file).strip().encode()))
        allowed = access.Access(
            _parsed("--users", users, access.read_users), _parsed("--acl", acl, access.read_permissions)
        )
    except ValueError as fault:
        raise CommandFailed(str(fault), None, USAGE) from None
    logging.basicConfig(level=logging.WARNING, format="ottla registry: %(message)s")
    async with AsyncExitStack() as stack:
        clusters: list[ClusterClient] = [
            await stack.enter_async_context(connect(connection, limited=False, client_id="ottla-registry"))
            for _ in range(3)
        ]
        await server.serve(settings, allowed, (clusters[0], clusters[1], clusters[2]), _ready)


def _ready(url: str, offset: int) -> None:
    print(f"schema registry at {url}", flush=True)
    if not offset:
        note(f"an example: curl {url}/subjects")


def _own_name(host: str) -> str:
    return socket.getfqdn() if host in ("0.0.0.0", "::", "") else host


def _parsed(option: str, path: str | None, parse: Callable[[str], T]) -> T | None:
    """Return what `parse` makes of a file, or None if there is no file."""
    if path is None:
        return None
    try:
        return parse(_read(option, path))
    except ValueError as fault:
        raise CommandFailed(f"{option} {path}: {fault}", None, USAGE) from None


def _read(option: str, path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as fault:
        raise CommandFailed(f"{option} {path} cannot be read: {fault}", None, USAGE) from None
