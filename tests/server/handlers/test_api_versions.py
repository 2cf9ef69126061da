"""ApiVersions lists what is served, as Apache Kafka lists it (invariant 47)."""

from __future__ import annotations

import pytest

from ottla.protocol.api import APIS, ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.server.handlers.api_versions import ApiVersionsHandler, Features
from ottla.server.network.context import RequestContext
from ottla.server.network.route import Route, RouteTable
from tests.server.handlers.kafka_tables import TABLES, versions

FEATURES = Features(
    supported={"metadata.version": (7, 33), "group.version": (0, 1), "kraft.version": (0, 1)},
    finalized={"metadata.version": 30, "group.version": 1, "kraft.version": 0},
    epoch=12,
)


def ask(version: int, name: str = "librdkafka", software_version: str = "2.15.0") -> ApiVersionsResponse:
    handler = ApiVersionsHandler(lambda: FEATURES)
    handler.set_routes(RouteTable(Route(key, lambda request, context: None) for key in APIS).rows)
    request = ApiVersionsRequest(client_software_name=name, client_software_version=software_version)
    return handler(request, RequestContext(ApiKey.API_VERSIONS, version, "c", None))


def test_the_versions_are_those_of_apache_kafka() -> None:
    said = {key.api_key: (key.min_version, key.max_version) for key in ask(0).api_keys}
    kafka = versions(TABLES["4.4.0"].broker)
    assert {key: said[key] for key in kafka} == kafka


def test_produce_is_listed_from_version_0_because_librdkafka_looks_for_it() -> None:
    produce = next(key for key in ask(0).api_keys if key.api_key == ApiKey.PRODUCE)
    assert (produce.min_version, produce.max_version) == (0, 13)
    assert Route(ApiKey.PRODUCE, lambda request, context: None).codec(2) is None


def test_features_that_start_at_zero_are_listed_from_version_4_only() -> None:
    assert {feature.name for feature in ask(3).supported_features} == {"metadata.version"}
    assert {feature.name for feature in ask(4).supported_features} == set(FEATURES.supported)
    for version in (3, 4):
        finalized = {feature.name: feature.max_version_level for feature in ask(version).finalized_features}
        assert finalized == {"metadata.version": 30, "group.version": 1}
        assert ask(version).finalized_features_epoch == 12


@pytest.mark.parametrize("name", ["", "-x", "x.", "a b", "a_b", "a\n", "é"])
def test_a_software_name_that_is_none_is_refused(name: str) -> None:
    for response in (ask(3, name=name), ask(3, software_version=name)):
        assert response.error_code == ErrorCode.INVALID_REQUEST
        assert response.api_keys == []


@pytest.mark.parametrize("name", ["a", "apache-kafka-java", "1.2.3", "A-1.b"])
def test_usual_software_names_are_fine(name: str) -> None:
    assert ask(3, name=name).error_code == ErrorCode.NONE
