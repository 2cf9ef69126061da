"""Decoding of what clients push, within its bounds."""

from __future__ import annotations

import pytest

from ottla.broker.telemetry.otlp import LABEL_LENGTH_MAX, LABELS_MAX, NAME_LENGTH_MAX, decode
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.work import do_now
from tests.broker.telemetry.pushes import pushed, value


def test_a_push_of_too_many_points_is_cut() -> None:
    points, dropped = do_now(decode(pushed(*(value("m", 1, i=str(i)) for i in range(5_000))), 10))
    assert (len(points), dropped) == (10, 4_990)


def test_long_names_values_and_lists_of_labels_are_cut() -> None:
    labels = {f"l{index}": "v" * (LABEL_LENGTH_MAX + 1) for index in range(LABELS_MAX + 1)}
    ((point,), _) = do_now(decode(pushed(value("n" * (NAME_LENGTH_MAX + 1), 1, **labels)), 10))
    assert point.name == "n" * NAME_LENGTH_MAX
    assert point.labels == tuple((f"l{index}", "v" * LABEL_LENGTH_MAX) for index in range(LABELS_MAX))


def test_bytes_that_are_no_metrics_are_refused() -> None:
    with pytest.raises(KafkaError) as refused:
        do_now(decode(b"\0garbage", 10))
    assert refused.value.code == ErrorCode.INVALID_RECORD
