"""GetTelemetrySubscriptions (71): which metrics the client is to push, and how often (KIP-714)."""

from __future__ import annotations

from ottla.broker.components import BrokerComponents
from ottla.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from ottla.protocol.primitives import ZERO_UUID, new_uuid
from ottla.server.network.context import RequestContext

#: ZSTD, LZ4, GZIP, SNAPPY, in Kafka's order of preference.
COMPRESSION_TYPES = [4, 3, 1, 2]


def handle(
    broker: BrokerComponents, request: GetTelemetrySubscriptionsRequest, context: RequestContext
) -> GetTelemetrySubscriptionsResponse:
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
