"""ApiVersions lists what is served, as Apache Kafka lists it (invariant 47)."""

from __future__ import annotations

import pytest

from ottla.protocol.api import APIS, ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.releases import NODE_SOFTWARE, RELEASES, Advertised
from ottla.server.handlers.api_versions import ApiVersionsHandler, Features
from ottla.server.network.context import RequestContext
from ottla.server.network.route import Route, RouteTable
from tests.server.handlers.kafka_tables import TABLES, versions

FEATURES = Features(
    supported={"metadata.version": (7, 33), "group.version": (0, 1), "kraft.version": (0, 1)},
    finalized={"metadata.version": 30, "group.version": 1, "kraft.version": 0},
    epoch=12,
)


#: The APIs that are served from a higher version on than by the release.
LOWEST_LATER = {
    int(key)
    for key, (low, _) in RELEASES["2.8.2"].apis["broker"].items()
    if key in APIS and low < min(APIS[ApiKey(key)].oldest, APIS[ApiKey(key)].advertised_min)
}


def ask(
    version: int, name: str = "librdkafka", software_version: str = "2.15.0", release: str = "4.4.0"
) -> ApiVersionsResponse:
    advertised = Advertised(RELEASES[release])
    handler = ApiVersionsHandler(lambda: FEATURES, advertised)
    handler.set_routes(RouteTable((Route(key, lambda request, context: None) for key in APIS), advertised))
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


def test_a_release_with_zookeeper_lists_its_own_apis_and_no_features() -> None:
    response = ask(3, release="2.8.2")
    said = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}
    assert said == RELEASES["2.8.2"].apis["broker"] | {key: said[key] for key in said.keys() & LOWEST_LATER}
    assert (response.supported_features, response.finalized_features) == ([], [])
    assert response.finalized_features_epoch == -1


def test_a_release_lists_the_features_that_it_has() -> None:
    response = ask(3, release="3.5.2")
    assert [(each.name, each.min_version, each.max_version) for each in response.supported_features] == [
        ("metadata.version", 1, 33)
    ], "the highest is that of the node, whose cluster would have the release's"
    assert [each.name for each in response.finalized_features] == ["metadata.version"]
    assert response.finalized_features_epoch == 12


def test_another_node_gets_all_that_is_here() -> None:
    for_nodes, clients = ask(3, NODE_SOFTWARE, release="2.8.2"), ask(3, release="2.8.2")
    highest = {key.api_key: key.max_version for key in for_nodes.api_keys}
    assert highest[ApiKey.FETCH] == 18 and ApiKey.CONSUMER_GROUP_HEARTBEAT in highest
    assert {each.name for each in for_nodes.finalized_features} == {"metadata.version", "group.version"}
    assert len(for_nodes.api_keys) > len(clients.api_keys)
