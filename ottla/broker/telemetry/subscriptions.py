"""Subscriptions to clients' metrics (KIP-714): what the client-metrics resources ask of one client. Pure functions."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.protocol.records.crc import crc32c
from ottla.server.config.client_metrics import CLIENT_METRICS_CONFIGS, match_patterns
from ottla.server.extras import Pattern

ALL_METRICS = "*"
#: A client that no subscription matches asks again after this time, and no subscription makes it longer, as in Kafka.
INTERVAL_MS = 300_000


class Subscription(NamedTuple):
    """One client-metrics resource."""

    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, Pattern]

    def matches(self, attributes: Mapping[str, str]) -> bool:
        return all(
            pattern.fullmatch(attributes.get(selector, "")) is not None for selector, pattern in self.match.items()
        )


class Wanted(NamedTuple):
    """What all matching subscriptions together ask of one client."""

    subscription_id: int
    metrics: tuple[str, ...]
    interval_ms: int

    def includes(self, name: str) -> bool:
        """Whether the metric was asked for: names of subscriptions are beginnings of metrics' names (KIP-714)."""
        return self.metrics == (ALL_METRICS,) or name.startswith(self.metrics)


def parse_subscription(configs: Mapping[str, str]) -> Subscription:
    """Raises ConfigError if a value is not valid."""
    value = {
        name: key.parse(configs.get(name, key.to_text(key.default))) for name, key in CLIENT_METRICS_CONFIGS.items()
    }
    return Subscription(tuple(value["metrics"]), value["interval.ms"], match_patterns(value["match"]))


def wanted(subscriptions: Iterable[Subscription], instance_id: bytes, attributes: Mapping[str, str]) -> Wanted:
    """Returns the union of the metrics and the shortest interval of the subscriptions that match the client."""
    matching = [subscription for subscription in subscriptions if subscription.matches(attributes)]
    metrics = sorted({name for subscription in matching for name in subscription.metrics})
    if ALL_METRICS in metrics:
        metrics = [ALL_METRICS]
    interval_ms = min([INTERVAL_MS, *(subscription.interval_ms for subscription in matching)])
    return Wanted(_subscription_id(metrics, interval_ms, instance_id), tuple(metrics), interval_ms)


def _subscription_id(metrics: list[str], interval_ms: int, instance_id: bytes) -> int:
    """CRC32C of metrics and interval, XOR the hash of the instance id: the same on each broker, so that a client may change brokers.

    The names are sorted. In Kafka they stand in the order of a hash set, and a client only returns the number.
    """
    text = f"[{', '.join(metrics)}]{interval_ms}"
    high, low = struct.unpack(">QQ", instance_id)
    mixed = high ^ low
    number: int = crc32c(text.encode()) ^ (mixed >> 32) ^ (mixed & 0xFFFFFFFF)
    return number - (1 << 32) if number >= 1 << 31 else number
