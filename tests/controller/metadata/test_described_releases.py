"""DescribeConfigs of a broker that emulates an older release (docs/EMULATE.md)."""

from __future__ import annotations

import pytest

from ottla.controller.metadata.describe_configs import describe_configs
from ottla.controller.metadata.image import MetadataImage
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from ottla.server.config.node_config import NodeConfig

BROKER = 4


def described(release: str, **values: str) -> dict[str, DescribeConfigsResourceResult]:
    static = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": "1@localhost:22150",
        "listeners": "PLAINTEXT://localhost:22050,CONTROLLER://localhost:22150",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": "/nowhere",
        "ottla.advertised.release": release,
    }
    config = NodeConfig(static | {name.replace("_", "."): value for name, value in values.items()})
    resource = DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    (result,) = describe_configs(MetadataImage(), config, request).results
    return {row.name: row for row in result.configs}


@pytest.mark.parametrize(
    ("release", "name", "is_read_only"),
    [
        ("3.9", "advertised.listeners", False),
        ("4.0", "advertised.listeners", True),
        ("2.1", "log.message.downconversion.enable", False),
        ("3.9", "remote.log.reader.threads", True),
        ("4.0", "remote.log.reader.threads", False),
        ("2.1", "log.retention.ms", False),
        ("2.1", "node.id", None),
    ],
)
def test_what_can_be_changed_while_it_runs_is_that_of_the_release(
    release: str, name: str, is_read_only: bool | None
) -> None:
    row = described(release).get(name)
    assert (None if row is None else row.read_only) is is_read_only


def test_a_setting_that_the_release_does_not_know_has_no_type_and_is_hidden() -> None:
    name = "share.coordinator.state.topic.min.isr"
    row = described("3.9", share_coordinator_state_topic_min_isr="1")[name]
    assert (row.value, row.config_type, row.is_sensitive, row.read_only) == (None, 0, True, True)
    assert {synonym.value for synonym in row.synonyms} == {None}
    assert name not in described("3.9")


@pytest.mark.parametrize("name", ["allow.everyone.if.no.acl.found", "super.users"])
def test_settings_of_the_authorizer_are_hidden_as_at_apache_kafka(name: str) -> None:
    set_here = {name.replace(".", "_"): "true"}
    row = described("4.3", **set_here)[name]
    assert (row.value, row.config_type, row.is_sensitive, row.read_only) == (None, 0, True, True)
    assert described("4.4", **set_here)[name].value == "true"
