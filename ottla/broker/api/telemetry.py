"""The metrics of clients (KIP-714): subscriptions for clients, and the metrics that they push."""

from __future__ import annotations

from typing import Any

from ottla.broker.components import BrokerComponents
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from ottla.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from ottla.protocol.primitives import new_uuid
from ottla.protocol.records.compression import CODECS
from ottla.protocol.schema import ZERO_UUID
from ottla.server.network.context import RequestContext

#: The codecs' numbers in Kafka's order of preference.
COMPRESSION_TYPES = [
    number
    for _, number in sorted((each.telemetry_rank, number) for number, each in enumerate(CODECS) if each.telemetry_rank)
]


def get_telemetry_subscriptions(
    broker: BrokerComponents, request: GetTelemetrySubscriptionsRequest, context: RequestContext
) -> GetTelemetrySubscriptionsResponse:
    """GetTelemetrySubscriptions (71): which metrics the client is to push, and how often (KIP-714)."""
    instance_id = request.client_instance_id
    if instance_id == ZERO_UUID:
        instance_id = new_uuid(broker.world.rng)
    instance = broker.telemetry.instance(instance_id, context)
    broker.telemetry.instances.check_get(instance, broker.world.clock.mono_ms())
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=instance.wanted.subscription_id,
        accepted_compression_types=COMPRESSION_TYPES,
        push_interval_ms=instance.wanted.interval_ms,
        telemetry_max_bytes=broker.configs["telemetry.max.bytes"],
        delta_temporality=True,
        requested_metrics=list(instance.wanted.metrics),
    )


COMPRESSION_TYPE_MAX = 4
#: Kafka's Uuid.RESERVED: the id that stands for no id, and the id of the metadata topic.
RESERVED_IDS = (bytes(16), bytes(15) + b"\1")


def push_telemetry(broker: BrokerComponents, request: PushTelemetryRequest, context: RequestContext) -> Any:
    """PushTelemetry (72): the client's metrics, which the broker shows with its own (KIP-714).

    Errors:
        INVALID_REQUEST      no client instance id: the client has not asked for its subscriptions
        TELEMETRY_TOO_LARGE  the metrics have more than telemetry.max.bytes
    """
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
