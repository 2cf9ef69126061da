"""PushTelemetry (72): accepted if it fits the empty subscription, then dropped: no metrics plugin would receive it (KIP-714)."""

from __future__ import annotations

from broker.handlers.get_telemetry_subscriptions import SUBSCRIPTION_ID
from broker.parts import BrokerParts
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from protocol.primitives import ZERO_UUID
from server.network.context import RequestContext

COMPRESSION_TYPE_MAX = 4


def handle(broker: BrokerParts, request: PushTelemetryRequest, context: RequestContext) -> PushTelemetryResponse:
    if request.client_instance_id == ZERO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "no client instance id: ask for the subscriptions first")
    if request.subscription_id != SUBSCRIPTION_ID:
        raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
    if not 0 <= request.compression_type <= COMPRESSION_TYPE_MAX:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    if len(request.metrics) > broker.configs["telemetry.max.bytes"]:
        raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE)
    return PushTelemetryResponse()
