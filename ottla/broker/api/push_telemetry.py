"""PushTelemetry (72): the client's metrics, which the broker shows with its own (KIP-714).

Errors:
    INVALID_REQUEST      no client instance id: the client has not asked for its subscriptions
    TELEMETRY_TOO_LARGE  the metrics have more than telemetry.max.bytes
"""

from __future__ import annotations

from typing import Any

from ottla.broker.components import BrokerComponents
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from ottla.server.network.context import RequestContext

COMPRESSION_TYPE_MAX = 4
#: Kafka's Uuid.RESERVED: none at all, and the metadata topic's.
RESERVED_IDS = (bytes(16), bytes(15) + b"\1")


def handle(broker: BrokerComponents, request: PushTelemetryRequest, context: RequestContext) -> Any:
    instance_id = request.client_instance_id
    if instance_id in RESERVED_IDS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "no client instance id: ask for the subscriptions first")
    instance = broker.telemetry.instance(instance_id, context)
    is_known_codec = 0 <= request.compression_type <= COMPRESSION_TYPE_MAX
    broker.telemetry.instances.check_push(
        instance, request.subscription_id, request.terminating, is_known_codec, broker.world.clock.mono_ms()
    )
    bytes_max: int = broker.configs["telemetry.max.bytes"]
    if len(request.metrics) > bytes_max:
        raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE)
    if not request.metrics:
        return PushTelemetryResponse()
    work = broker.telemetry.take(instance_id, instance, request.compression_type, request.metrics, bytes_max)
    return broker.long_work.run(context, work, lambda _: PushTelemetryResponse(), is_search=True)
