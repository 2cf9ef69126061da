"""GetTelemetrySubscriptions (71): the response has no subscriptions, like Kafka's without a metrics plugin (KIP-714)."""

from __future__ import annotations

from ottla.broker.components import BrokerComponents
from ottla.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from ottla.protocol.primitives import ZERO_UUID, new_uuid
from ottla.server.network.context import RequestContext

#: Kafka's ClientMetricsConfigs.DEFAULT_INTERVAL_MS: the client repeats the request after this time.
PUSH_INTERVAL_MS = 300_000
#: ZSTD, LZ4, GZIP, SNAPPY, in Kafka's order of preference.
COMPRESSION_TYPES = [4, 3, 1, 2]
#: The CRC32C of no subscriptions at all, mixed with their count: any constant would do, a client only sends it back.
SUBSCRIPTION_ID = 0


def handle(
    broker: BrokerComponents, request: GetTelemetrySubscriptionsRequest, context: RequestContext
) -> GetTelemetrySubscriptionsResponse:
    instance_id = request.client_instance_id
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=new_uuid(broker.world.rng) if instance_id == ZERO_UUID else instance_id,
        subscription_id=SUBSCRIPTION_ID,
        accepted_compression_types=COMPRESSION_TYPES,
        push_interval_ms=PUSH_INTERVAL_MS,
        telemetry_max_bytes=broker.configs["telemetry.max.bytes"],
        delta_temporality=True,
    )
