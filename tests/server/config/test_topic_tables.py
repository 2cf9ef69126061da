"""The configurations that make a topic's table, and the places that a topic may name."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.server.config.broker import BROKER_CONFIGS, is_secret
from ottla.server.config.key import ConfigError
from ottla.server.config.node_config import NodeConfig
from ottla.server.config.resource_configs import check_topic_configs, is_shown, topic_values

LAKE = "s3://lake/kafka"
STATIC = {
    "process.roles": "broker",
    "node.id": "1",
    "listeners": "PLAINTEXT://:9092",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "2@h:1",
}
TABLE = {"ottla.table.format": "iceberg"}


def broker(**own: Any) -> dict[str, Any]:
    """A broker's values; `location` is `ottla.table.location`."""
    given = {f"ottla.table.{name.replace('_', '.')}": value for name, value in own.items()}
    return {name: key.default for name, key in BROKER_CONFIGS.items()} | given


def refusal(configs: dict[str, str], values: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        check_topic_configs(configs, values)
    return str(caught.value)


def test_location_and_catalog_are_the_brokers_unless_the_topic_has_its_own() -> None:
    values = broker(location=LAKE, catalog="http://catalog", allowed_places=["*"])
    assert topic_values(TABLE, values)["ottla.table.location"] == LAKE
    own = TABLE | {"ottla.table.location": "/other", "ottla.table.catalog": "files"}
    found = topic_values(own, values)
    assert (found["ottla.table.location"], found["ottla.table.catalog"]) == ("/other", "files")
    check_topic_configs(own, values)


def test_a_topic_without_a_table_shows_kafkas_configurations_alone() -> None:
    """A broker's file has the location, and kafka-topics prints each configuration of a topic that is not the default."""
    shown = ("ottla.table.location", "ottla.table.catalog", "ottla.table.format", "retention.ms")
    assert [name for name in shown if is_shown(name, {})] == ["retention.ms"]
    assert all(is_shown(name, TABLE) for name in shown)


def test_columns_by_schemas_need_a_registry_in_the_brokers_files() -> None:
    typed = TABLE | {"ottla.table.value": "registry"}
    assert "ottla.table.value=registry needs ottla.table.registry" in refusal(typed, broker(location=LAKE))
    check_topic_configs(typed, broker(location=LAKE, registry="http://127.0.0.1:8081"))


def test_a_table_without_a_place_is_refused() -> None:
    assert "needs ottla.table.location" in refusal(TABLE, broker())
    check_topic_configs({"ottla.table.format": "none"}, broker())


@pytest.mark.parametrize(
    ("location", "is_allowed"),
    [
        (LAKE, True),
        (f"{LAKE}/team", True),
        (f"{LAKE}2", False),
        (f"{LAKE}/../other", False),
        ("/etc", False),
        ("s3://another/kafka", False),
        ("/srv/lake/a", True),
        ("/srv/lake/", True),
        ("/srv/lake//etc", False),
        ("/srv/lake/./a", False),
        (f"{LAKE}/day=1/a b", True),
        (f"{LAKE}/%2e%2e/other", False),
        (f"{LAKE}/.%2E/other", False),
        (f"{LAKE}/.\t./other", False),
        (f"{LAKE}/..\\..\\other", False),
        (f"{LAKE}/a?endpoint=http://127.0.0.1", False),
        (f"{LAKE}/a#b", False),
        (f"{LAKE}/a\nb", False),
    ],
)
def test_a_topic_names_only_places_that_the_nodes_file_allows(location: str, is_allowed: bool) -> None:
    """A user who may create a topic must not make the broker write anywhere with its own permissions."""
    values = broker(location=LAKE, allowed_places=["/srv/lake"])
    configs = TABLE | {"ottla.table.location": location}
    if is_allowed:
        check_topic_configs(configs, values)
    else:
        assert "is not allowed" in refusal(configs, values)


def test_a_topic_names_only_catalogs_that_the_nodes_file_allows() -> None:
    """Otherwise the broker would send its credentials there."""
    values = broker(location=LAKE, catalog="http://catalog", allowed_places=["http://second"])
    for allowed in ("files", "http://catalog", "http://second"):
        check_topic_configs(TABLE | {"ottla.table.catalog": allowed}, values)
    assert "is not allowed" in refusal(TABLE | {"ottla.table.catalog": "http://catalog.evil"}, values)


@pytest.mark.parametrize(
    ("name", "value"),
    [("format", "csv"), ("value", "xml"), ("commit.interval.ms", "1"), ("hold.ms.max", "-1"), ("retention.hold", "x")],
)
def test_a_wrong_value_is_refused(name: str, value: str) -> None:
    assert f"ottla.table.{name}" in refusal(TABLE | {f"ottla.table.{name}": value}, broker(location=LAKE))


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("catalog", "postgresql://ottla:hush@db/catalog"),
        ("catalog", "postgresql+psycopg2://ottla:hu/sh@db/catalog"),
        ("catalog", "postgresql://db/catalog?user=ottla&password=hush"),
        ("catalog", "https://me:hush@catalog/v1"),
        ("location", "s3://key:hush@lake/kafka"),
        ("location", "s3://lake/kafka?aws_secret_access_key=hush"),
        ("registry", "http://a:8081,http://me:hush@b:8081"),
        ("allowed.places", "s3://other,postgresql://ottla:hush@db/catalog"),
    ],
)
def test_an_address_that_clients_may_read_has_no_password(name: str, address: str) -> None:
    with pytest.raises(ConfigError, match="has a password or a key, and clients may read this configuration") as caught:
        NodeConfig(STATIC | {f"ottla.table.{name}": address})
    assert "hush" not in f"{caught.value} {caught.value.value}"
    if name in ("catalog", "location"):
        text = refusal(TABLE | {f"ottla.table.{name}": address}, broker(location=LAKE, allowed_places=["*"]))
        assert "has a password or a key" in text and "hush" not in text


def test_an_address_without_a_password_may_have_a_port_a_user_and_any_path() -> None:
    for name, address in (
        ("catalog", "http://catalog:8181/warehouse@prod"),
        ("catalog", "postgresql://ottla@db:5432/catalog"),
        ("catalog", "sqlite:////srv/a:b@c"),
        ("location", "s3://lake/a:b@c"),
    ):
        NodeConfig(STATIC | {f"ottla.table.{name}": address})


def test_options_of_stores_are_secrets() -> None:
    config = NodeConfig(STATIC | {"ottla.table.store.secret_access_key": "hush"})
    assert config.store_options == {"secret_access_key": "hush"}
    assert "ottla.table.store.secret_access_key" not in config.unknown
    assert is_secret("ottla.table.store.secret_access_key")
