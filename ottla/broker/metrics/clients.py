"""Metrics that clients have pushed (KIP-714), and the counts of Kafka's ClientMetricsManager."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.broker.telemetry.service import Telemetry
from ottla.server.metrics import Family, counter, gauge

PREFIX = "kafka_server_client_metrics"


def client_metrics(telemetry: Telemetry, now_ms: int) -> Iterator[Family]:
    instances, series = telemetry.instances, telemetry.series
    yield gauge(f"{PREFIX}_instance_count", "Client instances that asked for subscriptions", len(instances))
    yield counter(f"{PREFIX}_throttle", "Requests before the next push interval", instances.throttled)
    yield counter(
        f"{PREFIX}_unknown_subscription_request", "Pushes for other subscriptions", instances.unknown_subscriptions
    )
    yield gauge(f"{PREFIX}_series", "Series that clients have pushed", len(series))
    yield counter(
        f"{PREFIX}_dropped_series",
        "Pushed values that no subscription asks for, or beyond the bounds of clients and series",
        series.dropped,
    )
    yield from series.families(now_ms)
