"""GetTelemetrySubscriptions: which metrics a client is to push (KIP-714)."""

from __future__ import annotations

from ottla.protocol.schema import ZERO_UUID, api_message, int8, int16, int32, uuid, v


@api_message(71)
class GetTelemetrySubscriptionsRequest:
    client_instance_id: uuid = ZERO_UUID


@api_message(71)
class GetTelemetrySubscriptionsResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    client_instance_id: uuid = ZERO_UUID
    subscription_id: int32 = 0
    accepted_compression_types: list[int8] = v(default=[])
    push_interval_ms: int32 = 0
    telemetry_max_bytes: int32 = 0
    delta_temporality: bool = False
    requested_metrics: list[str] = v(default=[])
