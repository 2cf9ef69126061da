"""PushTelemetry: a client pushes its metrics (KIP-714)."""

from __future__ import annotations

from ottla.protocol.schema import ZERO_UUID, api_message, int8, int16, int32, uuid


@api_message(72)
class PushTelemetryRequest:
    client_instance_id: uuid = ZERO_UUID
    subscription_id: int32 = 0
    terminating: bool = False
    compression_type: int8 = 0
    metrics: bytes = b""


@api_message(72)
class PushTelemetryResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
