"""Decoding of what clients push, within its bounds."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
)

from ottla.broker.telemetry.otlp import LABEL_LENGTH_MAX, LABELS_MAX, LEAF_BYTES_MAX, NAME_LENGTH_MAX, decode
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.work import do_now
from tests.broker.telemetry.pushes import pushed, total, value


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


def test_a_histogram_is_passed_over() -> None:
    metric = Metric(name="h", histogram=Histogram(data_points=[HistogramDataPoint(count=3, sum=1.5)]))
    ((point,), _) = do_now(decode(pushed(metric, value("m", 2)), 10))
    assert point.name == "m"


@pytest.mark.parametrize(
    "data",
    [
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
    good = pushed(total("a.total", 3, topic="t"), value("b", 1.5, x="y"), group_id="g")
    for _ in range(2_000):
        data = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        with suppress(KafkaError):
            do_now(decode(bytes(data), 10))


def test_a_push_of_very_many_fields_is_decoded_in_turns() -> None:
    data = b"\x10\x01" * 100_000  # number 2, which MetricsData has not
    assert sum(1 for _ in decode(data, 10)) >= 100_000 // 2_048
