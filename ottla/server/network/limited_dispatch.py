"""The dispatcher for clients while the node advertises an older release: they get what that release has, and nothing more.

Nodes of Ottla get everything. They name themselves in ApiVersions, which they send first, in v3 (KIP-511): only this request is
accepted in a version that the release lacks. The name gives access to versions only: authorization is as always.
"""

from __future__ import annotations

from ottla.protocol.api import APIS
from ottla.protocol.errors import ProtocolError
from ottla.protocol.releases import NODE_SOFTWARE
from ottla.server.clock import Clock
from ottla.server.network.connection import Connection
from ottla.server.network.dispatch import API_VERSIONS, HEADER_BYTES, Dispatcher, decode_frame, read_header
from ottla.server.network.frames import Buffer
from ottla.server.network.route import Route, RouteTable, make_codec
from ottla.server.quotas.clients import ClientQuotas
from ottla.server.tasks import Spawn

#: The first version of ApiVersions that has the client's software.
NAMED_VERSION = 3
NOT_SERVED = (0, -1)


def dispatcher(routes: RouteTable, clock: Clock, spawn: Spawn, quotas: ClientQuotas | None = None) -> Dispatcher:
    """Return the dispatcher for a table. Without limits it is the usual one, which takes no additional time."""
    kind = Dispatcher if routes.limits is None else LimitedDispatcher
    return kind(routes, clock, spawn, quotas)


class LimitedDispatcher(Dispatcher):
    """The dispatcher for one kind of listener of a node, like `Dispatcher`."""

    __slots__ = ("_limits",)

    def __init__(self, routes: RouteTable, clock: Clock, spawn: Spawn, quotas: ClientQuotas | None = None) -> None:
        super().__init__(routes, clock, spawn, quotas)
        self._limits = routes.limits or {}

    def dispatch(self, connection: Connection, buf: Buffer, pos: int, end: int) -> None:
        """Serve the frame buf[pos:end]."""
        if connection.client_software_name != NODE_SOFTWARE and end - pos >= HEADER_BYTES:
            api_key, version, _, _ = read_header(buf, pos)
            low, high = self._limits.get(api_key, NOT_SERVED)
            if not low <= version <= high and not (api_key == API_VERSIONS and names_a_node(version, buf, pos, end)):
                self._unserved(connection, buf, pos, end, self.routes.get(api_key))
                return
        super().dispatch(connection, buf, pos, end)

    def versions(self, route: Route) -> tuple[int, int]:
        """Return the versions of an API that clients have."""
        return self._limits.get(route.api_key, NOT_SERVED)

    def _unserved(self, connection: Connection, buf: Buffer, pos: int, end: int, route: Route | None) -> None:
        api_key, version, _, _ = read_header(buf, pos)
        if api_key == API_VERSIONS or api_key not in APIS or self._by_key is not self.routes.by_key:
            super()._unserved(connection, buf, pos, end, route)
        else:
            connection.refuse(
                f"Received request api key {APIS[api_key].name} with version {version} which is not enabled"
            )


def names_a_node(version: int, buf: Buffer, pos: int, end: int) -> bool:
    """Return True if a request of ApiVersions comes from a node of Ottla."""
    if not NAMED_VERSION <= version <= APIS[API_VERSIONS].max_version:
        return False
    try:
        request = decode_frame(make_codec(API_VERSIONS, version), buf, pos, end)
    except ProtocolError:
        return False
    return bool(request.client_software_name == NODE_SOFTWARE)
