"""The connection of one command to a cluster: its client properties, its cluster client and its time limit.

`ottla` and the stand-ins for Kafka's tools connect in the same way, and differ in what they print when time is up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

from ottla.client.cluster import CLIENT_ID, ClusterClient, parse_bootstrap
from ottla.client.errors import ClusterError
from ottla.client.failures import Kind
from ottla.server.network.peer_security import PLAINTEXT
from ottla.server.world import RealWorld

#: It logs why a login failed, which is also the failure of the command.
LOGIN_LOGGER = "ottla.server.sasl.peer_login"


class TimeUp(Exception):
    """The time limit of the command is over. `doing` is the step that it interrupted."""

    def __init__(self, doing: str) -> None:
        super().__init__(doing)
        self.doing = doing


def read_client_properties(path: str) -> dict[str, str]:
    """Read a file of client properties.

    Raises:
        ClusterError: as `read_property_file`.
    """
    return read_property_file(path, "it must be a file of client properties")


def read_property_file(path: str, remedy: str) -> dict[str, str]:
    """Read a file of properties, of a client or a node.

    Raises:
        ClusterError: it cannot be read, or has a line that is no property.
    """
    from ottla.server.config.properties_file import read_properties

    try:
        with open(path, "rb") as file:
            return read_properties(file.read(), path)
    except OSError as failure:
        raise ClusterError(f"{path} cannot be read: {failure.strerror}", remedy, Kind.WRONG) from None
    except ValueError as failure:
        raise ClusterError(str(failure), None, Kind.WRONG) from None


@asynccontextmanager
async def open_cluster(
    servers: str,
    properties: Mapping[str, str],
    path: str | None,
    timeout_ms: int,
    *,
    limited: bool,
    client_id: str = CLIENT_ID,
) -> AsyncIterator[ClusterClient]:
    """Connect a cluster client as the properties say.

    They come from the file `path` or from options. A `limited` command ends after its timeout.

    Raises:
        ClusterError: an address or a property is wrong.
        TimeUp: the time limit is over.
    """
    bootstrap = parse_bootstrap(servers)
    real = RealWorld(asyncio.get_running_loop())
    login_logger = logging.getLogger(LOGIN_LOGGER)
    login_logger.disabled = True
    try:
        security = PLAINTEXT
        if properties:
            # Imported late: the mechanisms are slow to import.
            from ottla.client.security import peer_security

            security = peer_security(real.world, properties, path or "the client's properties")
        cluster = ClusterClient(real.world, bootstrap, timeout_ms, security, client_id)
        try:
            async with asyncio.timeout(timeout_ms / 1000 if limited else None):
                yield cluster
        except TimeoutError:
            raise TimeUp(cluster.doing) from None
        finally:
            # End the tasks first: a task that still waits for a channel would never read why the channel was closed, and
            # asyncio would log that.
            await real.tasks.close()
            with suppress(Exception):
                await cluster.close()
    finally:
        login_logger.disabled = False
        await real.close()
