"""PushTelemetry (72): accepted if it fits the empty subscription, then dropped: no metrics plugin would receive it (KIP-714)."""

from __future__ import annotations

from typing import Any

from ottla.broker.components import BrokerComponents
from ottla.broker.handlers.get_telemetry_subscriptions import SUBSCRIPTION_ID
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from ottla.protocol.primitives import ZERO_UUID
from ottla.protocol.records.compression import TooLarge, expanding
from ottla.protocol.work import Turn, Work
from ottla.server.network.context import RequestContext

COMPRESSION_TYPE_MAX = 4


def handle(broker: BrokerComponents, request: PushTelemetryRequest, context: RequestContext) -> Any:
    if request.client_instance_id == ZERO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "no client instance id: ask for the subscriptions first")
    if request.subscription_id != SUBSCRIPTION_ID:
        raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
    if not 0 <= request.compression_type <= COMPRESSION_TYPE_MAX:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    bytes_max: int = broker.configs["telemetry.max.bytes"]
    if len(request.metrics) > bytes_max:
        raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE)
    unpacking = _unpack(request, bytes_max)
    return broker.long_work.run(context, unpacking, lambda _: PushTelemetryResponse(), is_search=True)


def _unpack(request: PushTelemetryRequest, bytes_max: int) -> Work[None]:
    """Reject what could not be handed on. The limit is for both forms, with the same error (KAFKA-21076)."""
    if not request.metrics:
        return
    try:
        yield from expanding(request.compression_type, memoryview(request.metrics), Turn(), bytes_max)
    except TooLarge as error:
        raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE, error.message) from None
    except KafkaError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, error.message) from None
