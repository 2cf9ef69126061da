"""Clients' metrics from their subscription to a scrape (KIP-714): on the wire, and with librdkafka."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer

from ottla.broker.telemetry.client_telemetry import ATTRIBUTE_LENGTH_MAX, TELEMETRY_APIS
from ottla.cli.commands.client import clients
from ottla.client.admin_listeners import samples_of
from ottla.controller.metadata.configs import ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.push_telemetry import PushTelemetryRequest
from ottla.protocol.records.compression import compress
from tests.broker.conftest import Node, eventually, start_node, stop_node
from tests.broker.telemetry.pushes import pushed, total
from tests.broker.wire import Wire
from tests.ports import free_ports

SET, DELETE = 0, 1


@pytest.fixture(scope="module")
def admin_port() -> int:
    return free_ports(1)[0]


@pytest.fixture(scope="module")
def node(admin_port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    directory: Path = tmp_path_factory.mktemp("telemetry")
    started = start_node(directory / "node", ottla_admin_listener=f"127.0.0.1:{admin_port}")
    yield started
    stop_node(started)


@pytest.fixture
def wire(node: Node) -> Iterator[Wire]:
    with node.wire() as opened:
        yield opened


def subscribe(wire: Wire, name: str, **configs: str | None) -> None:
    rows = [
        AlterableConfig(name=key.replace("_", "."), config_operation=DELETE if value is None else SET, value=value)
        for key, value in configs.items()
    ]
    resource = AlterConfigsResource(resource_type=int(ResourceType.CLIENT_METRICS), resource_name=name, configs=rows)
    (result,) = wire.request(IncrementalAlterConfigsRequest(resources=[resource])).responses
    assert result.error_code == 0, result


def scrape(port: int) -> str:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text: str = answer.read().decode()
        return text


def push(wire: Wire, **options: Any) -> int:
    """Push the options like a client that has just asked for its subscriptions."""
    subscription = wire.request(GetTelemetrySubscriptionsRequest())
    known: dict[str, Any] = {
        "client_instance_id": subscription.client_instance_id,
        "subscription_id": subscription.subscription_id,
    }
    return int(wire.request(PushTelemetryRequest(**known | options)).error_code)


@pytest.fixture
def subscribed(wire: Wire) -> Iterator[None]:
    subscribe(wire, "wires", metrics="org.apache.kafka.wire.", match="client_id=wire")
    yield
    subscribe(wire, "wires", metrics=None, match=None)


def test_without_a_subscription_nothing_is_asked_for_and_no_push_is_taken(wire: Wire) -> None:
    subscription = wire.request(GetTelemetrySubscriptionsRequest())
    assert subscription.client_instance_id != bytes(16)
    assert subscription.requested_metrics == []
    assert (
        push(wire, metrics=pushed(total("org.apache.kafka.wire.count.total", 7))) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    )


def test_a_client_id_of_32_kb_is_a_label_of_256_characters(node: Node, admin_port: int, subscribed: None) -> None:
    with node.wire("wire" * 8_000) as wire:
        subscribe(wire, "long", metrics="org.apache.kafka.wire.", match="client_id=wire.*")
        assert push(wire, metrics=pushed(total("org.apache.kafka.wire.long.total", 7))) == 0
        subscribe(wire, "long", metrics=None, match=None)
    line = next(line for line in scrape(admin_port).splitlines() if line.startswith("kafka_client_wire_long_total{"))
    assert f'client_id="{"wire" * 64}"' in line and len("wire" * 64) == ATTRIBUTE_LENGTH_MAX


def test_a_push_that_is_not_valid_is_refused(wire: Wire, subscribed: None) -> None:
    assert push(wire) == 0
    assert push(wire, subscription_id=5) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert push(wire, client_instance_id=bytes(16)) == ErrorCode.INVALID_REQUEST
    assert push(wire, compression_type=9) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert push(wire, metrics=b"x" * (1 << 21)) == ErrorCode.TELEMETRY_TOO_LARGE
    # Field number 15, with the length of all bytes that follow.
    unknown_field = b"\x7a\xfc\xff\x3f" + bytes((1 << 20) - 4)
    for codec in range(5):
        assert push(wire, compression_type=codec, metrics=compress(codec, unknown_field)) == 0
        assert push(wire, compression_type=codec, metrics=b"garbage") == ErrorCode.INVALID_RECORD
    for codec in range(1, 5):
        # telemetry.max.bytes also limits the decompressed bytes (KAFKA-21076).
        too_large = compress(codec, bytes((1 << 20) + 1))
        assert push(wire, compression_type=codec, metrics=too_large) == ErrorCode.TELEMETRY_TOO_LARGE


def test_a_push_before_the_interval_is_throttled_and_what_was_asked_for_is_scraped(
    wire: Wire, admin_port: int, subscribed: None
) -> None:
    subscription = wire.request(GetTelemetrySubscriptionsRequest())
    request = PushTelemetryRequest(
        client_instance_id=subscription.client_instance_id,
        subscription_id=subscription.subscription_id,
        metrics=pushed(total("org.apache.kafka.wire.count.total", 7), total("org.apache.kafka.else.count.total", 1)),
    )
    assert wire.request(request).error_code == 0
    assert wire.request(request).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    line = next(line for line in scrape(admin_port).splitlines() if line.startswith("kafka_client_wire_count_total{"))
    assert 'client_id="wire"' in line
    assert line.endswith(" 7.0")
    row = next(row for row in clients("here", samples_of(scrape(admin_port))) if row["client_id"] == "wire")
    assert (row["broker"], row["series"]) == ("here", 1)


def advertised(wire: Wire) -> set[int]:
    return {
        each.api_key
        for each in wire.request(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3).api_keys
    }


def test_the_apis_are_listed_while_a_subscription_exists_so_that_other_clients_print_nothing_about_them(
    wire: Wire, node: Node, capfd: pytest.CaptureFixture[str]
) -> None:
    """With default settings librdkafka prints a GETSUBSCRIPTIONS line as soon as it sees the API; beside Apache Kafka it prints
    nothing.
    """
    assert not TELEMETRY_APIS & advertised(wire)
    node.create("quiet")
    producer = Producer({"bootstrap.servers": node.bootstrap})
    producer.produce("quiet", b"x")
    assert producer.flush(10) == 0
    assert capfd.readouterr().err == ""
    subscribe(wire, "shops", metrics="", interval_ms="1000")
    eventually(lambda: advertised(wire) >= TELEMETRY_APIS, "the APIs to be listed")
    subscribe(wire, "shops", metrics=None, interval_ms=None)
    eventually(lambda: not TELEMETRY_APIS & advertised(wire), "the APIs to be left out again")


def test_librdkafka_pushes_what_it_is_subscribed_to_and_no_longer_than_that(
    wire: Wire, node: Node, admin_port: int
) -> None:
    subscribe(wire, "shops", metrics="org.apache.kafka.producer.", interval_ms="200", match="client_id=shop.*")
    subscribed = wire.request(GetTelemetrySubscriptionsRequest())
    assert subscribed.requested_metrics == [], "the pattern is for others"
    node.create("orders")
    with node.wire("shop-2") as shop:
        assert shop.request(GetTelemetrySubscriptionsRequest()).requested_metrics == ["org.apache.kafka.producer."]
    producer = Producer({"bootstrap.servers": node.bootstrap, "client.id": "shop-1"})
    producer.produce("orders", b"3 apples")

    def is_shown() -> bool:
        producer.poll(0.05)
        return any(
            line.startswith("kafka_client_producer_") and 'client_id="shop-1"' in line and "confluent-kafka" in line
            for line in scrape(admin_port).splitlines()
        )

    try:
        eventually(is_shown, "the producer's metrics to be scraped")
    finally:
        producer.flush(10)
    subscribe(wire, "shops", metrics=None, interval_ms=None, match=None)
    with node.wire("shop-3") as shop:
        eventually(
            lambda: not shop.request(GetTelemetrySubscriptionsRequest()).requested_metrics, "nothing to be asked for"
        )
