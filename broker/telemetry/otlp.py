"""Decoding of a push: OpenTelemetry's MetricsData as a list of points. Sums and gauges, which is all that Kafka's clients send."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.work import Turn, Work
from ottla.server.metrics import COUNTER, GAUGE

if TYPE_CHECKING:
    from opentelemetry.proto.common.v1.common_pb2 import KeyValue

MODULE = "opentelemetry.proto.metrics.v1.metrics_pb2"
#: The budget of one point, in records of `protocol.work`: some ten microseconds.
POINT_COST = 8
LABELS_MAX = 16
NAME_LENGTH_MAX = 128
LABEL_LENGTH_MAX = 256
Labels = tuple[tuple[str, str], ...]


class Point(NamedTuple):
    """One value of one series. `is_delta`: it is to be added to the values before it."""

    name: str
    kind: str
    labels: Labels
    value: float
    is_delta: bool


def decode(data: bytes, points_max: int) -> Work[tuple[list[Point], int]]:
    """Returns the points, and the number of those that were dropped because there were too many.

    Raises:
        KafkaError: INVALID_RECORD, the bytes are no MetricsData.
    """
    if MODULE not in sys.modules:
        yield _import  # on a worker thread: the first import of protobuf takes 140 ms
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_DELTA, MetricsData

    try:
        decoded = MetricsData.FromString(data)
    except DecodeError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from None
    found: list[Point] = []
    dropped = 0
    turn = Turn()
    for resource in decoded.resource_metrics:
        of_client = _labels(resource.resource.attributes)
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                kind = COUNTER if metric.sum.is_monotonic else GAUGE
                is_delta = metric.sum.aggregation_temporality == AGGREGATION_TEMPORALITY_DELTA
                name = metric.name[:NAME_LENGTH_MAX]
                for point in metric.sum.data_points if metric.HasField("sum") else metric.gauge.data_points:
                    if turn.spend(POINT_COST):
                        yield None
                    if len(found) >= points_max:
                        dropped += 1
                        continue
                    value = point.as_double if point.HasField("as_double") else float(point.as_int)
                    found.append(Point(name, kind, of_client + _labels(point.attributes), value, is_delta))
                if turn.spend(POINT_COST):
                    yield None
    return found, dropped


def _import() -> None:
    import_module(MODULE)


def _labels(attributes: Iterable[KeyValue]) -> Labels:
    """Returns the attributes as texts, at most 16 of them; those of other types than text, number and bool are left out."""
    labels = []
    for attribute, _ in zip(attributes, range(LABELS_MAX), strict=False):
        kind = attribute.value.WhichOneof("value")
        if kind in ("string_value", "int_value", "double_value", "bool_value"):
            labels.append((attribute.key[:NAME_LENGTH_MAX], str(getattr(attribute.value, kind))[:LABEL_LENGTH_MAX]))
    return tuple(labels)
