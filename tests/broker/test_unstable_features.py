"""Nodes that enable Kafka's unstable features advertise and serve them, and all others the advertised release."""

from __future__ import annotations

import pytest

from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
)
from ottla.protocol.messages.unregister_controller import UnregisterControllerRequest
from ottla.protocol.releases import METADATA_VERSION
from tests.broker.conftest import start_node, stop_node
from tests.broker.wire import Wire
from tests.server.handlers.kafka_tables import TABLES, versions

LOOK_AT = ApiVersionsRequest(client_software_name="t", client_software_version="1")
UNSTABLE = {"unstable_api_versions_enable": "true", "unstable_feature_versions_enable": "true"}
TOPIC, GROUP = 2, 32
DEAD_LETTERS = "errors.deadletterqueue.group.enable"


def advertised(answer: ApiVersionsResponse) -> dict[int, tuple[int, int]]:
    return {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}


def features(answer: ApiVersionsResponse) -> tuple[dict[str, tuple[int, int]], dict[str, int]]:
    supported = {row.name: (row.min_version, row.max_version) for row in answer.supported_features}
    return supported, {row.name: row.max_version_level for row in answer.finalized_features}


def created(wire: Wire, name: str, configs: dict[str, str]) -> tuple[int, str | None, set[str]]:
    rows = [CreatableTopicConfig(key, value) for key, value in configs.items()]
    request = CreateTopicsRequest([CreatableTopic(name, num_partitions=1, replication_factor=1, configs=rows)])
    (topic,) = wire.request(request).topics
    return topic.error_code, topic.error_message, {row.name for row in topic.configs or ()}


def described(wire: Wire, kind: int, name: str) -> set[str]:
    (result,) = wire.request(DescribeConfigsRequest([DescribeConfigsResource(kind, name, None)])).results
    return {row.name for row in result.configs}


@pytest.mark.parametrize("release", TABLES)
def test_a_node_advertises_what_the_release_does(release: str) -> None:
    table = TABLES[release]
    node = start_node(ottla_advertised_release=release)
    with node.wire() as wire:
        answer = wire.request(LOOK_AT, 4)
        assert advertised(answer) == versions(table.broker)
        assert features(answer) == (table.supported, table.finalized)
        newest = release == "4.4.0"
        code, why, names = created(wire, "letters", {DEAD_LETTERS: "true"})
        expected = (0, None) if newest else (ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {DEAD_LETTERS}")
        assert (code, why) == expected
        _, _, names = created(wire, "t", {})
        assert len(names) == (37 if newest else 33) and names == described(wire, TOPIC, "t")
        assert len(described(wire, GROUP, "g")) == (21 if newest else 17)
        if newest:
            assert wire.request(UnregisterControllerRequest(9)).error_code == ErrorCode.CONTROLLER_ID_NOT_REGISTERED
            update = wire.request(StreamsGroupTopologyDescriptionUpdateRequest("g", "m", 1))
            assert update.error_code == ErrorCode.UNSUPPORTED_VERSION
            assert update.error_message == "The broker has no streams group topology description plugin configured."
    assert stop_node(node) == 0


@pytest.mark.parametrize("release", TABLES)
def test_a_node_that_enables_it_has_what_is_unstable_in_the_release(release: str) -> None:
    table = TABLES[release]
    node = start_node(ottla_advertised_release=release, **UNSTABLE)
    with node.wire() as wire:
        answer = wire.request(LOOK_AT, 4)
        assert advertised(answer) == versions(table.broker) | {ApiKey.INIT_PRODUCER_ID: (0, 6)}
        level = table.unstable_metadata_version
        supported, finalized = features(answer)
        assert supported == table.supported | {METADATA_VERSION: (7, level)}
        assert finalized == table.finalized | {METADATA_VERSION: level}
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        assert wire.request(request, 6).error_code == ErrorCode.NONE
    assert stop_node(node) == 0
