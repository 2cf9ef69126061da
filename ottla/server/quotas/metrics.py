"""Kafka's metrics of client quotas, by user and client id: kafka.server:type=Produce, Fetch, Request and ControllerMutation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ottla.server.kept import kept_metrics
from ottla.server.metrics import COUNTER, GAUGE, Family, Sample
from ottla.server.quotas.clients import ClientQuotas
from ottla.server.quotas.table import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)


class _Names(NamedTuple):
    prefix: str
    rate: str
    doc: str


NAMES = {
    PRODUCER_BYTE_RATE: _Names(
        "kafka_server_produce", "kafka_server_produce_byte_rate", "Bytes a second produced under a quota"
    ),
    CONSUMER_BYTE_RATE: _Names(
        "kafka_server_fetch", "kafka_server_fetch_byte_rate", "Bytes a second fetched under a quota"
    ),
    REQUEST_PERCENTAGE: _Names(
        "kafka_server_request",
        "kafka_server_request_request_time",
        "Share of the event loop used under a quota, in percent",
    ),
    CONTROLLER_MUTATION_RATE: _Names(
        "kafka_server_controllermutation",
        "kafka_server_controllermutation_mutation_rate",
        "Partitions a second under a quota",
    ),
}


def quota_metrics(quotas: ClientQuotas, now_ms: int) -> Iterator[Family]:
    """Returns the metrics of clients with a quota. throttle_time is the average of all throttled responses, as in Kafka."""
    yield from kept_metrics([quotas.clients])
    for key, names in NAMES.items():
        meters = [(share, meter) for (kind, share), meter in quotas.meters.items() if kind == key]
        if not meters:
            continue
        prefix = names.prefix
        labels = [{"user": share.user, "client_id": share.client_id} for share, _ in meters]
        rows = list(zip(labels, (meter for _, meter in meters), strict=True))
        rates = [Sample(label, meter.rate.per_second(now_ms)) for label, meter in rows]
        yield Family(names.rate, GAUGE, names.doc, rates)
        if key == CONTROLLER_MUTATION_RATE:
            tokens = [Sample(label, meter.bucket.tokens(meter.limit, now_ms)) for label, meter in rows]
            yield Family(f"{prefix}_tokens", GAUGE, "Partitions that may be changed now", tokens)
        average = [Sample(label, meter.throttled_ms / max(1, meter.throttles)) for label, meter in rows]
        yield Family(
            f"{prefix}_throttle_time", GAUGE, "Milliseconds that a throttled answer names, on average", average
        )
        counts = [Sample(label, meter.throttles) for label, meter in rows]
        yield Family(f"{prefix}_throttled", COUNTER, "Answers that were throttled", counts)
