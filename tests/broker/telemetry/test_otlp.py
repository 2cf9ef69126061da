"""The decoding of clients' metrics, within its bounds."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_DELTA,
    ExponentialHistogram,
    ExponentialHistogramDataPoint,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    Summary,
    SummaryDataPoint,
)

from ottla.broker.telemetry.otlp import LABEL_LENGTH_MAX, LABELS_MAX, LEAF_BYTES_MAX, NAME_LENGTH_MAX, Labels, decode
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.work import do_now
from tests.broker.telemetry.pushes import attributes, pushed, total, value


def test_a_push_of_too_many_points_is_cut() -> None:
    points, dropped = do_now(decode(pushed(*(value("m", 1, i=str(i)) for i in range(5_000))), 10))
    assert (len(points), dropped) == (10, 4_990)


def test_long_names_values_and_lists_of_labels_are_cut() -> None:
    labels = {f"l{index}": "v" * (LABEL_LENGTH_MAX + 1) for index in range(LABELS_MAX + 1)}
    ((point,), _) = do_now(decode(pushed(value("n" * (NAME_LENGTH_MAX + 1), 1, **labels)), 10))
    assert point.name == "n" * NAME_LENGTH_MAX
    assert point.labels == tuple((f"l{index}", "v" * LABEL_LENGTH_MAX) for index in range(LABELS_MAX))


def test_attributes_of_each_type_become_texts() -> None:
    values = [AnyValue(string_value="é"), AnyValue(bool_value=True), AnyValue(int_value=-5), AnyValue(double_value=0.5)]
    labels = [KeyValue(key=f"k{index}", value=value) for index, value in enumerate(values)]
    labels.append(KeyValue(key="bytes", value=AnyValue(bytes_value=b"x")))
    metric = Metric(name="m", gauge=Gauge(data_points=[NumberDataPoint(as_int=-(1 << 40), attributes=labels)]))
    ((point,), _) = do_now(decode(pushed(metric, group_id="g"), 10))
    assert point.labels == (("group_id", "g"), ("k0", "é"), ("k1", "True"), ("k2", "-5"), ("k3", "0.5"))
    assert point.value == -(1 << 40)


def rows(*metrics: Metric, points_max: int = 10) -> tuple[list[tuple[str, Labels, float, bool]], int]:
    points, dropped = do_now(decode(pushed(*metrics), points_max))
    return [(point.name, point.labels, point.value, point.is_delta) for point in points], dropped


def test_a_histogram_has_its_count_its_sum_and_cumulative_buckets() -> None:
    point = HistogramDataPoint(
        count=6, sum=1.5, bucket_counts=[1, 2, 3], explicit_bounds=[0.1, 5], attributes=attributes({"k": "v"})
    )
    metric = Metric(
        name="h", histogram=Histogram(data_points=[point], aggregation_temporality=AGGREGATION_TEMPORALITY_DELTA)
    )
    k = ("k", "v")
    expected = [
        ("h_count", (k,), 6, True),
        ("h_sum", (k,), 1.5, True),
        ("h_bucket", (k, ("le", "0.1")), 1, True),
        ("h_bucket", (k, ("le", "5.0")), 3, True),
        ("h_bucket", (k, ("le", "+Inf")), 6, True),
    ]
    assert rows(metric) == (expected, 0)
    assert rows(metric, points_max=2) == (expected[:2], 3)


def test_a_histogram_without_buckets_or_sum_has_its_count() -> None:
    metric = Metric(name="h", histogram=Histogram(data_points=[HistogramDataPoint(count=3)]))
    assert rows(metric) == ([("h_count", (), 3, False)], 0)


def test_a_summary_has_its_count_its_sum_and_its_quantiles() -> None:
    quantiles = [SummaryDataPoint.ValueAtQuantile(quantile=q, value=10 * q) for q in (0.5, 0.99)]
    point = SummaryDataPoint(count=2, sum=7, quantile_values=quantiles, attributes=attributes({"k": "v"}))
    k = ("k", "v")
    assert rows(Metric(name="s", summary=Summary(data_points=[point]))) == (
        [
            ("s_count", (k,), 2, False),
            ("s_sum", (k,), 7, False),
            ("s", (k, ("quantile", "0.5")), 5, False),
            ("s", (k, ("quantile", "0.99")), 9.9, False),
        ],
        0,
    )


def test_an_exponential_histogram_has_its_count_and_its_sum() -> None:
    point = ExponentialHistogramDataPoint(count=2, sum=7, scale=3, zero_count=1, attributes=attributes({"k": "v"}))
    metric = Metric(name="e", exponential_histogram=ExponentialHistogram(data_points=[point]))
    k = ("k", "v")
    assert rows(metric) == ([("e_count", (k,), 2, False), ("e_sum", (k,), 7, False)], 0)


@pytest.mark.parametrize(
    "data",
    [
        pushed(Metric(name="h", histogram=Histogram(data_points=[HistogramDataPoint(bucket_counts=[1, 2])]))),
        b"\0garbage",
        b"\x0a\x05ab",
        b"\x0b",
        b"\x0a" + b"\xff" * 11,
        pushed(value("m", 1, **{f"l{index}": "v" * 1_000 for index in range(LEAF_BYTES_MAX // 1_000 + 1)})),
        pushed(value("m", 1, k="v")).replace(b"\x0a\x01v", b"\x0a\x01\xff"),
    ],
)
def test_bytes_that_are_no_metrics_are_refused(data: bytes) -> None:
    with pytest.raises(KafkaError) as refused:
        do_now(decode(data, 10))
    assert refused.value.code == ErrorCode.INVALID_RECORD


def test_whatever_the_bytes_are_they_are_metrics_or_refused() -> None:
    rng = Random(714)
    buckets = HistogramDataPoint(count=3, bucket_counts=[1, 2], explicit_bounds=[0.1])
    histogram = Metric(name="h", histogram=Histogram(data_points=[buckets]))
    good = pushed(total("a.total", 3, topic="t"), value("b", 1.5, x="y"), histogram, group_id="g")
    for _ in range(2_000):
        data = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        with suppress(KafkaError):
            do_now(decode(bytes(data), 10))


def test_a_push_of_very_many_fields_is_decoded_in_turns() -> None:
    data = b"\x10\x01" * 100_000  # field number 2, which MetricsData does not have
    assert sum(1 for _ in decode(data, 10)) >= 100_000 // 2_048
