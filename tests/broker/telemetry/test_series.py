"""The values that clients push: decoded, added up, bounded, and shown to Prometheus."""

from __future__ import annotations

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_DELTA,
    Histogram,
    HistogramDataPoint,
    Metric,
)

from ottla.broker.telemetry import client_telemetry as module
from ottla.broker.telemetry.client_telemetry import ClientSeries
from ottla.broker.telemetry.otlp import decode
from ottla.protocol.work import do_now
from ottla.server.metrics import COUNTER, GAUGE
from tests.broker.telemetry.pushes import pushed, total, value

SENT = "org.apache.kafka.producer.record.send.total"
SHOWN = "kafka_client_producer_record_send"


def add(series: ClientSeries, data: bytes, client: str = "a", now_ms: int = 0) -> None:
    points, _ = do_now(decode(data, 100))
    series.add(client.encode(), {"client_id": client}, points, now_ms, now_ms + 60_000)


def shown(series: ClientSeries, now_ms: int = 0) -> dict[tuple[str, str, str], float]:
    return {
        (family.name, family.kind, ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()))): sample.value
        for family in series.families(now_ms)
        for sample in family.samples
    }


def test_sums_since_the_last_push_are_added_up_and_gauges_are_replaced() -> None:
    series = ClientSeries()
    for count in (3, 4):
        add(series, pushed(total(SENT, count, topic="t"), value("org.apache.kafka.x-y", count / 2), group_id="g"))
    assert shown(series) == {
        (SHOWN, COUNTER, "client_id=a,group_id=g,topic=t"): 7,
        ("kafka_client_x_y", GAUGE, "client_id=a,group_id=g"): 2,
    }


def test_a_histograms_buckets_are_added_up_under_the_names_that_prometheus_has_for_them() -> None:
    series = ClientSeries()
    point = HistogramDataPoint(count=3, sum=4.5, bucket_counts=[1, 2], explicit_bounds=[0.5])
    histogram = Histogram(data_points=[point], aggregation_temporality=AGGREGATION_TEMPORALITY_DELTA)
    for _ in range(2):
        add(series, pushed(Metric(name="app.latency", histogram=histogram)))
    assert shown(series) == {
        ("kafka_client_app_latency_count", GAUGE, "client_id=a"): 6,
        ("kafka_client_app_latency_sum", GAUGE, "client_id=a"): 9,
        ("kafka_client_app_latency_bucket", GAUGE, "client_id=a,le=0.5"): 2,
        ("kafka_client_app_latency_bucket", GAUGE, "client_id=a,le=+Inf"): 6,
    }


def test_a_client_that_pushes_nothing_more_is_no_longer_shown() -> None:
    series = ClientSeries()
    add(series, pushed(total(SENT, 1)))
    assert len(shown(series, 59_999)) == 1
    assert not shown(series, 60_000)
    assert len(series) == 0


def test_clients_and_series_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLIENTS_MAX", 2)
    monkeypatch.setattr(module, "SERIES_OF_CLIENT_MAX", 3)
    series = ClientSeries()
    for client in ("a", "b", "c"):
        add(series, pushed(*(value(f"m{index}", index) for index in range(5))), client)
    assert series.dropped == 6
    assert {labels for _, _, labels in shown(series)} == {"client_id=b", "client_id=c"}
    assert len(series) == 6
    monkeypatch.setattr(module, "SERIES_MAX", 7)
    add(series, pushed(value("m8", 1), value("m9", 1)), "b")
    assert series.dropped == 8, "client b has 3 series already"
    monkeypatch.setattr(module, "SERIES_OF_CLIENT_MAX", 5)
    add(series, pushed(value("m8", 1), value("m9", 1)), "b")
    assert (len(series), series.dropped) == (7, 9)


def test_a_scrape_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sample repeats the client's labels. Before the fix five clients with ids of 32 KB caused a scrape of 328 MB."""
    monkeypatch.setattr(module, "SCRAPE_BYTES_MAX", 1_000)
    series = ClientSeries()
    add(series, pushed(*(value(f"m{index}", index) for index in range(10))), "c" * 256)
    assert 0 < len(series) < 4 and series.dropped == 10 - len(series)
    series.expire(1 << 40)
    assert series._bytes == 0
    add(series, pushed(value("m1", 1)), "d")
    assert len(series) == 1, "there is room again"


def test_a_client_cannot_write_under_the_names_of_the_brokers_metrics_or_break_a_scrape() -> None:
    series = ClientSeries()
    labels = {"__name__": "x", "client_id": "b", "0": "y", "é": "z"}
    add(series, pushed(value("kafka_server_x", 1, **labels), value("org.apache.kafka.producer.record.send", 2)))
    add(series, pushed(total(SENT, 5)), "b")  # a gauge has this name already
    names = {name for name, _, _ in shown(series)}
    assert names == {"kafka_client_kafka_server_x", SHOWN}
    assert (SHOWN, GAUGE, "client_id=a") in shown(series)
    assert (SHOWN, COUNTER, "client_id=b") not in shown(series)
    _, _, text = next(key for key in shown(series) if "kafka_server_x" in key[0])
    assert text == "attribute_0=y,attribute__=z,attribute___name__=x,client_id=a"
