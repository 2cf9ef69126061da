"""The process of one instance: its connections to the cluster, the log, the election and the HTTP server, from start to end."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from starlette.responses import JSONResponse

from ottla.client.cluster import ClusterClient
from ottla.registry.access import Access
from ottla.registry.checking import Checker
from ottla.registry.client import MEDIA_TYPE
from ottla.registry.election import Identity, RegistryElection
from ottla.registry.log import SchemaLog
from ottla.registry.members import Members
from ottla.registry.registry import SchemaRegistry
from ottla.registry.rest.app import Application
from ottla.registry.rest.forwarding import Link
from ottla.web.rules import App, HttpRules, Ruled
from ottla.web.server import HttpServer, listen

logger = logging.getLogger(__name__)

#: The most connections at one time. For a further one an idle connection is closed; if none is idle, the response is 503.
CONNECTIONS_MAX = 1_000
KEEP_ALIVE_S = 30
#: The media types of Confluent's registry. Like that one, this registry also accepts a body without a type.
BODIES = frozenset({MEDIA_TYPE, "application/vnd.schemaregistry+json", "application/json", "application/octet-stream"})
STOP_S = 5


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of `ottla registry`."""

    host: str
    port: int
    identity: Identity
    topic: str
    group: str
    level: str
    session_ms: int
    certificate: str | None = None
    key: str | None = None
    ca: str | None = None
    secret: bytes | None = None
    allowed_hosts: tuple[str, ...] = ()

    def rules(self) -> HttpRules:
        return HttpRules.at(self.host, [self.identity.host], self.allowed_hosts, BODIES)


async def serve(
    settings: Settings,
    access: Access,
    clusters: tuple[ClusterClient, ClusterClient, ClusterClient],
    ready: Callable[[str, int], None],
) -> None:
    """Serve until a signal asks for the end. `clusters` are three clients: to read, to write, and for the election.

    Raises:
        Failure: the topic cannot be read, the address is in use, or the group rejects this instance.
    """
    reading, writing, electing = clusters
    log = SchemaLog(reading, writing, settings.topic, f"{settings.group}-leader")
    await log.start()
    checker = Checker()
    registry = SchemaRegistry(log, checker, settings.level)
    tls = ssl.create_default_context(cafile=settings.ca) if settings.identity.scheme == "https" else None
    members = None if settings.secret is None else Members(settings.secret, writing.world.clock, writing.world.rng)
    server = http_server(Application(registry, access, Link(tls, members)), settings)
    listening = listen(settings.host, settings.port, "--listen takes another address")
    identity = settings.identity
    if not settings.port:  # the port that the kernel has chosen
        identity = Identity(identity.scheme, identity.host, listening[0].getsockname()[1], identity.eligible)
    election = RegistryElection(
        electing, settings.group, identity, registry.set_leader, registry.displaced, settings.session_ms, members
    )
    server.stop_on_signals()
    try:
        async with asyncio.TaskGroup() as group:
            background = [
                group.create_task(log.follow()),
                group.create_task(election.run()),
                group.create_task(_announce(registry, partial(ready, identity.url, log.place.offset))),
            ]
            await server.serve(sockets=listening)
            for task in background:
                task.cancel()
    except ExceptionGroup as faults:  # the first task beside the server that fails ends the instance
        raise faults.exceptions[0] from None
    finally:
        await election.leave()
        await checker.close()


async def _announce(registry: SchemaRegistry, ready: Callable[[], None]) -> None:
    """Report that the instance serves, once there is a leader: before that it cannot write."""
    await registry.elected.wait()
    ready()


def _refusal(status: int, text: str) -> App:
    answer: App = JSONResponse({"error_code": status, "message": text}, status, media_type=MEDIA_TYPE)
    return answer


def http_server(application: App, settings: Settings) -> HttpServer:
    """Return the server of an instance, behind the rules for requests of other sites.

    Raises:
        Failure: its certificate cannot be used.
    """
    return HttpServer(
        Ruled(application, settings.rules(), _refusal),
        CONNECTIONS_MAX,
        certificate=settings.certificate,
        key=settings.key,
        keep_alive_s=KEEP_ALIVE_S,
        stop_s=STOP_S,
    )
