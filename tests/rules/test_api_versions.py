"""ApiVersions of each kind of listener beside Apache Kafka 4.3.1's: whatever differs is in one table, with its reason."""

from __future__ import annotations

import pytest

from ottla.broker.routes import ROUTES
from ottla.controller.raft import routes as raft_routes
from ottla.controller.routes import ROUTES as CONTROLLER_ROUTES
from ottla.protocol.api import ApiKey
from ottla.server.network.route import Route
from tests.server.handlers import kafka_4_3_1

EVERYWHERE = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
NEWER = "a version that Kafka 4.4 adds"
FROM_4_4 = "an API that Kafka 4.4 adds"
TELEMETRY = "Kafka serves it with a plugin; here pushed metrics are in /metrics"

#: listener, key -> reason. A row without a difference fails, too.
DIFFERENCES: dict[tuple[str, ApiKey], str] = {
    ("broker", ApiKey.API_VERSIONS): NEWER,
    ("broker", ApiKey.TXN_OFFSET_COMMIT): NEWER,
    ("broker", ApiKey.DELETE_GROUPS): NEWER,
    ("broker", ApiKey.GET_TELEMETRY_SUBSCRIPTIONS): TELEMETRY,
    ("broker", ApiKey.PUSH_TELEMETRY): TELEMETRY,
    ("broker", ApiKey.STREAMS_GROUP_HEARTBEAT): NEWER,
    ("broker", ApiKey.STREAMS_GROUP_DESCRIBE): NEWER,
    ("broker", ApiKey.UNREGISTER_CONTROLLER): FROM_4_4,
    ("controller", ApiKey.API_VERSIONS): NEWER,
    ("controller", ApiKey.DESCRIBE_DELEGATION_TOKEN): "Kafka's controller lists it, but has no handler for it",
    ("controller", ApiKey.UNREGISTER_CONTROLLER): FROM_4_4,
}


def served(listener: str) -> dict[int, tuple[int, int]]:
    keys: list[ApiKey] = list(EVERYWHERE)
    if listener == "broker":
        keys += [row.api_key for row in ROUTES]
    else:
        keys += [key for key, _ in CONTROLLER_ROUTES] + [*raft_routes.READERS, ApiKey.DESCRIBE_QUORUM, ApiKey.ENVELOPE]
    routes = [Route(key, lambda request, context: None) for key in keys]
    return {int(route.api_key): (route.advertised_min, route.max_version) for route in routes}


@pytest.mark.parametrize(("listener", "text"), [("broker", kafka_4_3_1.BROKER), ("controller", kafka_4_3_1.CONTROLLER)])
def test_each_difference_from_kafka_4_3_1_has_its_reason(listener: str, text: str) -> None:
    kafka, ours = kafka_4_3_1.versions(text), served(listener)
    found = {
        ApiKey(key): f"Kafka {kafka.get(key)}, here {ours.get(key)}"
        for key in sorted(kafka.keys() | ours.keys())
        if kafka.get(key) != ours.get(key)
    }
    explained = {key: reason for (where, key), reason in DIFFERENCES.items() if where == listener}
    assert found.keys() <= explained.keys(), {key.name: text for key, text in found.items() if key not in explained}
    over = [key.name for key in explained if key not in found]
    assert not over, f"no longer different: {over}"
