"""ApiVersions (18): the APIs and versions that this node serves. The response is generated from its routes.

v3 has the client's software (KIP-511) and feature levels (KIP-584) · v4 includes features whose lowest level is 0, which
are left out for older clients, because these cannot read them · v5 names the cluster and node (KIP-1242).

The broker forwards some requests, so the active controller must serve their version, too: for these APIs the response has the
versions that both serve, once the controller's are known (KIP-590).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping
from typing import NamedTuple

from ottla.protocol.errors import ErrorCode
from ottla.protocol.features import shown_levels
from ottla.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from ottla.protocol.releases import DEFAULT, NODE_SOFTWARE, Advertised
from ottla.server.network.connection import Connection
from ottla.server.network.context import RequestContext
from ottla.server.network.route import RouteTable, advertised_min

#: KIP-511: letters, digits, dot and dash, not at the ends.
SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
#: The first version whose clients support features with lowest level 0 (KAFKA-17011).
FEATURES_FROM_ZERO = 4
NO_VERSION = (0, -1)
NO_EPOCH = -1


class Features(NamedTuple):
    """Feature levels: those that this node supports, and those that are finalized.

    An `epoch` of -1 means that they are not known yet.
    """

    supported: dict[str, tuple[int, int]]
    finalized: dict[str, int]
    epoch: int = -1


class ApiVersionsHandler:
    """Responds from `routes`, which includes the route of this handler itself: set it once the table is complete."""

    def __init__(self, features: Callable[[], Features], advertised: Advertised = DEFAULT) -> None:
        self._features = features
        self._advertised = advertised
        #: The APIs for clients, and those for nodes of Ottla.
        self._api_keys: list[ApiVersion] = []
        self._node_api_keys: list[ApiVersion] = []
        self._forwarded: frozenset[int] = frozenset()
        #: The lowest and highest version by API of the controller that requests are forwarded to; empty while they are not
        #: known.
        self.controller_versions: Callable[[], Mapping[int, tuple[int, int]]] = dict
        #: APIs that are served but not listed at the moment.
        self.hidden_apis: Callable[[], Container[int]] = frozenset

    def set_routes(self, table: RouteTable) -> None:
        self._node_api_keys = [
            ApiVersion(
                api_key=route.api_key,
                min_version=advertised_min(route.api_key, route.min_version),
                max_version=route.max_version,
            )
            for route in table.rows
        ]
        self._api_keys = (
            self._node_api_keys
            if table.limits is None
            else [
                ApiVersion(api_key=key, min_version=advertised_min(key, low), max_version=high)
                for key, (low, high) in table.limits.items()
            ]
        )
        self._forwarded = frozenset(route.api_key for route in table.rows if route.takes_frame)

    def __call__(self, request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
        if context.api_version >= 3:
            name, version = request.client_software_name, request.client_software_version
            if not SOFTWARE.fullmatch(name) or not SOFTWARE.fullmatch(version):
                return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
            if isinstance(context.connection, Connection):
                context.connection.client_software_name = name
                context.connection.client_software_version = version
        is_node = context.api_version >= 3 and request.client_software_name == NODE_SOFTWARE
        features = self._features()
        supported = features.supported if is_node else shown_levels(self._advertised, features.supported)
        return ApiVersionsResponse(
            api_keys=self._served(self.controller_versions(), self._node_api_keys if is_node else self._api_keys),
            supported_features=[
                SupportedFeatureKey(name=name, min_version=low, max_version=high)
                for name, (low, high) in supported.items()
                if low > 0 or context.api_version >= FEATURES_FROM_ZERO
            ],
            finalized_features_epoch=features.epoch if supported else NO_EPOCH,
            finalized_features=[
                FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
                for name, level in features.finalized.items()
                if level > 0 and name in supported
            ],
        )

    def _served(self, controller: Mapping[int, tuple[int, int]], rows: list[ApiVersion]) -> list[ApiVersion]:
        hidden = self.hidden_apis()
        listed = [row for row in rows if row.api_key not in hidden] if hidden else rows
        if not controller or not self._forwarded:
            return listed
        both = [self._with_controller(row, controller) for row in listed]
        return [row for row in both if row.min_version <= row.max_version]

    def _with_controller(self, row: ApiVersion, controller: Mapping[int, tuple[int, int]]) -> ApiVersion:
        if row.api_key not in self._forwarded:
            return row
        low, high = controller.get(row.api_key, NO_VERSION)
        return ApiVersion(
            api_key=row.api_key, min_version=max(low, row.min_version), max_version=min(high, row.max_version)
        )
