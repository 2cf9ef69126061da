"""The group coordinator's settings, of the broker's properties."""

from __future__ import annotations

import pytest

from ottla.broker.groups.group_config import GroupCoordinatorConfig, from_properties
from ottla.server.config.broker import BROKER_CONFIGS
from ottla.server.config.key import ConfigError
from ottla.server.config.settings import OWN_CONFIGS

UNIFORM_CLASS = "org.apache.kafka.coordinator.group.assignor.UniformAssignor"


def with_properties(**properties: object) -> GroupCoordinatorConfig:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    every = BROKER_CONFIGS | OWN_CONFIGS
    return from_properties(lambda name: named[name] if name in named else every[name].default)


def test_without_properties_the_defaults_are_kafkas() -> None:
    config = with_properties()
    assert config == GroupCoordinatorConfig(
        consumer_group_assignors=["uniform", "range"],
        consumer_migration_policy="bidirectional",
        groups=config.groups,
        waiting_heartbeat_interval_ms=1_000,
    )


def test_kafkas_assignors_may_be_named_by_their_classes() -> None:
    assert with_properties(group_consumer_assignors=["range", UNIFORM_CLASS]).consumer_group_assignors == [
        "range",
        "uniform",
    ]


@pytest.mark.parametrize("kind", ["consumer", "share", "streams"])
def test_an_assignor_of_another_class_is_refused_when_the_node_starts(kind: str) -> None:
    with pytest.raises(ConfigError, match="this assignor is unknown"):
        with_properties(**{f"group_{kind}_assignors": ["org.example.Mine"]})


def test_share_and_streams_groups_have_one_assignor_by_its_name_or_its_class() -> None:
    with_properties(group_share_assignors=["simple"], group_streams_assignors=["sticky"])
    with_properties(
        group_share_assignors=["org.apache.kafka.coordinator.group.assignor.SimpleAssignor"],
        group_streams_assignors=["org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor"],
    )
    with pytest.raises(ConfigError, match="exactly one assignor"):
        with_properties(group_share_assignors=["simple", "simple"])


@pytest.mark.parametrize(
    ("policy", "upgrade", "downgrade"),
    [("bidirectional", True, True), ("UPGRADE", True, False), ("Downgrade", False, True), ("disabled", False, False)],
)
def test_the_migration_policy_says_which_way_groups_may_change(policy: str, upgrade: bool, downgrade: bool) -> None:
    config = with_properties(group_consumer_migration_policy=policy)
    assert (config.is_upgrade_enabled, config.is_downgrade_enabled) == (upgrade, downgrade)
