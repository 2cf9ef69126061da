"""Dispatches the requests of clients while the node advertises an older release: they get what that release has, and no more.

Nodes of Ottla are served all that is here. They name themselves in ApiVersions, which they send in v3 first (KIP-511): that alone is
let through in a version that the release has not. The name opens nothing but versions: who may use an API is asked as always.
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
    """Return the dispatcher of a table: one without limits costs nothing more."""
    kind = Dispatcher if routes.limits is None else LimitedDispatcher
    return kind(routes, clock, spawn, quotas)


class LimitedDispatcher(Dispatcher):
    """One per node and kind of listener, as `Dispatcher`."""

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
    """Return True if a request of ApiVersions is that of a node of Ottla."""
    if not NAMED_VERSION <= version <= APIS[API_VERSIONS].max_version:
        return False
    try:
        request = decode_frame(make_codec(API_VERSIONS, version), buf, pos, end)
    except ProtocolError:
        return False
    return bool(request.client_software_name == NODE_SOFTWARE)
