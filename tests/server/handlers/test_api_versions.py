"""ApiVersions lists what is served, as Apache Kafka lists it (invariant 47)."""

from __future__ import annotations

import pytest

from ottla.protocol.api import APIS, ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.server.handlers.api_versions import ApiVersionsHandler, Features
from ottla.server.network.context import RequestContext
from ottla.server.network.route import Route

FEATURES = Features(
    supported={"metadata.version": (7, 33), "group.version": (0, 1), "kraft.version": (0, 1)},
    finalized={"metadata.version": 30, "group.version": 1, "kraft.version": 0},
    epoch=12,
)
#: What a broker of Apache Kafka 4.3.1 says of itself (without a plugin for client telemetry): key, lowest, highest.
KAFKA_4_3_1 = """
0 0 13, 1 4 18, 2 1 11, 3 0 13, 8 2 10, 9 1 10, 10 0 6, 11 0 9, 12 0 4, 13 0 5, 14 0 5, 15 0 6, 16 0 5, 17 0 1, 18 0 4,
19 2 7, 20 1 6, 21 0 2, 22 0 5, 23 2 4, 24 0 5, 25 0 4, 26 0 5, 27 1 2, 28 0 5, 29 1 3, 30 1 3, 31 1 3, 32 1 4, 33 0 2,
34 1 2, 35 1 5, 36 0 2, 37 0 3, 38 1 3, 39 1 2, 40 1 2, 41 1 3, 42 0 2, 43 0 2, 44 0 1, 45 0 1, 46 0 0, 47 0 0, 48 0 1,
49 0 1, 50 0 0, 51 0 0, 55 0 2, 57 0 2, 60 0 2, 61 0 0, 64 0 0, 65 0 0, 66 0 2, 68 0 1, 69 0 1, 74 0 1, 75 0 0, 76 1 1,
77 1 1, 78 1 2, 79 1 2, 80 0 1, 81 0 0, 83 0 0, 84 0 0, 85 0 1, 86 0 0, 87 0 1, 88 0 0, 89 0 0, 90 0 1, 91 0 0, 92 0 0
"""
#: Where 4.4, which we follow, has one version more.
NEWER_IN_4_4 = {18: 5, 28: 6, 42: 3, 88: 1, 89: 1}


def ask(version: int, name: str = "librdkafka", software_version: str = "2.15.0") -> ApiVersionsResponse:
    handler = ApiVersionsHandler(lambda: FEATURES)
    handler.set_routes([Route(key, lambda request, context: None) for key in APIS])
    request = ApiVersionsRequest(client_software_name=name, client_software_version=software_version)
    return handler(request, RequestContext(ApiKey.API_VERSIONS, version, "c", None))


def test_the_versions_are_those_of_apache_kafka() -> None:
    said = {key.api_key: (key.min_version, key.max_version) for key in ask(0).api_keys}
    for row in KAFKA_4_3_1.replace("\n", " ").split(","):
        key, low, high = map(int, row.split())
        assert said[key] == (low, NEWER_IN_4_4.get(key, high)), APIS[ApiKey(key)].name


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
