"""MetricsData as clients push it."""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_DELTA,
    Gauge,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource


def attributes(labels: Mapping[str, str]) -> list[KeyValue]:
    return [KeyValue(key=name, value=AnyValue(string_value=value)) for name, value in labels.items()]


def total(name: str, value: int, **labels: str) -> Metric:
    """Return a sum of what happened since the last push."""
    points = [NumberDataPoint(as_int=value, attributes=attributes(labels))]
    return Metric(
        name=name,
        sum=Sum(data_points=points, is_monotonic=True, aggregation_temporality=AGGREGATION_TEMPORALITY_DELTA),
    )


def value(name: str, value: float, **labels: str) -> Metric:
    return Metric(name=name, gauge=Gauge(data_points=[NumberDataPoint(as_double=value, attributes=attributes(labels))]))


def pushed(*metrics: Metric, **labels: str) -> bytes:
    resource = Resource(attributes=attributes(labels))
    data = MetricsData(
        resource_metrics=[ResourceMetrics(resource=resource, scope_metrics=[ScopeMetrics(metrics=metrics)])]
    )
    return data.SerializeToString()
