"""ApiVersions of each kind of listener compared with Apache Kafka's, for each recorded release: the listed APIs and versions
are the same.
"""

from __future__ import annotations

import pytest

from ottla.broker.routes import ROUTES
from ottla.broker.telemetry.client_telemetry import TELEMETRY_APIS
from ottla.controller.raft import routes as raft_routes
from ottla.controller.routes import ROUTES as CONTROLLER_ROUTES
from ottla.protocol.api import APIS, ApiKey
from ottla.protocol.features import default_levels, shown_levels, supported_levels
from ottla.protocol.releases import BETWEEN_NODES, METADATA_VERSION, RELEASES, Advertised
from ottla.server.network.route import Route, RouteTable, advertised_min
from tests.server.handlers.kafka_tables import TABLES, versions

EVERYWHERE = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)


def served(listener: str, advertised: Advertised) -> dict[int, tuple[int, int]]:
    keys: list[ApiKey] = list(EVERYWHERE)
    if listener == "broker":
        keys += [row.api_key for row in ROUTES if row.api_key not in TELEMETRY_APIS]
    else:
        keys += [key for key, _ in CONTROLLER_ROUTES] + [*raft_routes.READERS, ApiKey.DESCRIBE_QUORUM, ApiKey.ENVELOPE]
    table = RouteTable([Route(key, lambda request, context: None) for key in keys], advertised, listener)
    limits = table.limits
    if limits is None:
        limits = {int(route.api_key): (route.min_version, route.max_version) for route in table.rows}
    return {key: (advertised_min(key, low), high) for key, (low, high) in limits.items()}


@pytest.mark.parametrize("release", TABLES)
@pytest.mark.parametrize("listener", ["broker", "controller"])
def test_a_listener_has_the_versions_of_the_release(release: str, listener: str) -> None:
    kafka = versions(getattr(TABLES[release], listener))
    assert served(listener, Advertised(RELEASES[release])) == kafka
    unstable = kafka | ({int(ApiKey.INIT_PRODUCER_ID): (0, 6)} if listener == "broker" else {})
    assert served(listener, Advertised(RELEASES[release], unstable_apis=True)) == unstable


@pytest.mark.parametrize("release", TABLES)
def test_the_features_are_those_of_the_release(release: str) -> None:
    table, stable = TABLES[release], Advertised(RELEASES[release])
    supported = supported_levels(stable)
    assert supported == table.supported == shown_levels(stable, supported)
    # Kafka's nodes had configured voters: their kraft.version is 0, which is not among the finalized ones.
    assert default_levels(advertised=stable) == table.finalized | {"kraft.version": 1}
    unstable, level = stable._replace(unstable_features=True), table.unstable_metadata_version
    supported = supported_levels(unstable)
    assert supported == table.supported | {METADATA_VERSION: (7, level)} == shown_levels(unstable, supported)
    assert default_levels(advertised=unstable) == table.finalized | {"kraft.version": 1, METADATA_VERSION: level}


@pytest.mark.parametrize("release", [name for name in RELEASES if name not in TABLES])
def test_a_broker_serves_every_stable_version_that_an_older_release_lists(release: str) -> None:
    """Client telemetry is listed once there is a subscription."""
    kafka = {key: each for key, each in RELEASES[release].apis["broker"].items() if key not in TELEMETRY_APIS}
    ours = served("broker", Advertised(RELEASES[release]))
    assert ours == {
        key: (
            advertised_min(
                key, max(low, APIS[ApiKey(key)].oldest) if key in APIS and key not in BETWEEN_NODES else low
            ),
            high,
        )
        for key, (low, high) in kafka.items()
    }
