"""The client instances that this broker knows (KIP-714), and whether their next request is in time. It reads no clock itself."""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import crc32c
from ottla.protocol.slotted import mutable
from ottla.server.config.resource_configs import CLIENT_METRICS_CONFIGS, match_patterns
from ottla.server.extras import Pattern
from ottla.server.regex.automaton import TooMuchWork

ALL_METRICS = "*"
#: A client that no subscription matches asks again after this time, and no subscription makes it longer, as in Kafka.
INTERVAL_MS = 300_000


class Subscription(NamedTuple):
    """One client-metrics resource."""

    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, Pattern]

    def matches(self, attributes: Mapping[str, str]) -> bool:
        """Return whether all expressions match. One that needs more work than it may have matches no client any more."""
        try:
            return all(
                pattern.fullmatch(attributes.get(selector, "")) is not None for selector, pattern in self.match.items()
            )
        except TooMuchWork:
            return False


class Wanted(NamedTuple):
    """The metrics and the interval that all matching subscriptions together ask of one client."""

    subscription_id: int
    metrics: tuple[str, ...]
    interval_ms: int

    def includes(self, name: str) -> bool:
        """Return whether the metric was asked for: names of subscriptions are beginnings of metrics' names (KIP-714)."""
        return self.metrics == (ALL_METRICS,) or name.startswith(self.metrics)


def parse_subscription(configs: Mapping[str, str]) -> Subscription:
    """Raise ConfigError if a value is not valid."""
    value = {
        name: key.parse(configs.get(name, key.to_text(key.default))) for name, key in CLIENT_METRICS_CONFIGS.items()
    }
    return Subscription(tuple(value["metrics"]), value["interval.ms"], match_patterns(value["match"]))


def wanted(subscriptions: Iterable[Subscription], instance_id: bytes, attributes: Mapping[str, str]) -> Wanted:
    """Return the union of the metrics and the shortest interval of the subscriptions that match the client."""
    matching = [subscription for subscription in subscriptions if subscription.matches(attributes)]
    metrics = sorted({name for subscription in matching for name in subscription.metrics})
    if ALL_METRICS in metrics:
        metrics = [ALL_METRICS]
    interval_ms = min([INTERVAL_MS, *(subscription.interval_ms for subscription in matching)])
    return Wanted(_subscription_id(metrics, interval_ms, instance_id), tuple(metrics), interval_ms)


def _subscription_id(metrics: list[str], interval_ms: int, instance_id: bytes) -> int:
    """CRC32C of metrics and interval, XOR the hash of the instance id: the same on each broker, so that a client may change brokers.

    The names are sorted. In Kafka they have the order of a hash set, and a client only returns the number.
    """
    text = f"[{', '.join(metrics)}]{interval_ms}"
    high, low = struct.unpack(">QQ", instance_id)
    mixed = high ^ low
    number: int = crc32c(text.encode()) ^ (mixed >> 32) ^ (mixed & 0xFFFFFFFF)
    return number - (1 << 32) if number >= 1 << 31 else number


#: Kafka's ClientMetricsManager.CACHE_MAX_SIZE; beyond it the instance that was used longest ago is forgotten.
INSTANCES_MAX = 16_384
#: An instance that sends nothing is forgotten after three push intervals, but after a minute at the earliest, as in Kafka.
EXPIRATION_MS_MIN = 60_000
#: A subscription id is repeated, or a codec corrected, at once (KIP-714).
CORRECTED_AT_ONCE = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
TOO_EARLY = "the request arrived before the next push interval"
_NEVER = -(1 << 62)


@mutable
class ClientInstance:
    """One client, from its first request for subscriptions on."""

    attributes: Mapping[str, str]
    wanted: Wanted
    #: The version of the subscriptions that `wanted` is computed from.
    version: int
    last_get_ms: int = _NEVER
    last_push_ms: int = _NEVER
    last_seen_ms: int = _NEVER
    is_terminating: bool = False
    last_error: ErrorCode = ErrorCode.NONE

    @property
    def expiration_ms(self) -> int:
        return max(EXPIRATION_MS_MIN, 3 * self.wanted.interval_ms)


class ClientInstances:
    """The client instances of one broker, and the subscriptions that are matched with them."""

    def __init__(self) -> None:
        self._subscriptions: dict[str, Subscription] = {}
        self._version = 0
        self._instances: OrderedDict[bytes, ClientInstance] = OrderedDict()
        self.throttled = 0
        self.unknown_subscriptions = 0

    def __len__(self) -> int:
        return len(self._instances)

    @property
    def has_subscriptions(self) -> bool:
        return bool(self._subscriptions)

    def set_subscription(self, name: str, subscription: Subscription | None) -> None:
        if subscription is None:
            self._subscriptions.pop(name, None)
        else:
            self._subscriptions[name] = subscription
        self._version += 1

    def seen(self, instance_id: bytes, attributes: Mapping[str, str], now_ms: int) -> ClientInstance:
        """Return the instance; a new one if it is unknown, expired, or the subscriptions have changed since."""
        found = self._instances.get(instance_id)
        if found is not None and now_ms - found.last_seen_ms > found.expiration_ms:
            found = None
        if found is None or found.version != self._version:
            kept = attributes if found is None else found.attributes
            found = ClientInstance(kept, wanted(self._subscriptions.values(), instance_id, kept), self._version)
            self._instances[instance_id] = found
        found.last_seen_ms = now_ms
        self._instances.move_to_end(instance_id)
        oldest_id, oldest = next(iter(self._instances.items()))
        if len(self._instances) > INSTANCES_MAX or now_ms - oldest.last_seen_ms > oldest.expiration_ms:
            self.forget(oldest_id)  # each request forgets one at most, which is enough over time
        return found

    def forget(self, instance_id: bytes) -> None:
        self._instances.pop(instance_id, None)

    def check_get(self, instance: ClientInstance, now_ms: int) -> None:
        """Raise KafkaError if the client asks for its subscriptions again before its interval is over."""
        last_ms = max(instance.last_get_ms, instance.last_push_ms)
        if now_ms - last_ms < instance.wanted.interval_ms and instance.last_error not in CORRECTED_AT_ONCE:
            self.throttled += 1
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, TOO_EARLY)
        instance.last_get_ms = now_ms
        instance.last_error = ErrorCode.NONE

    def check_push(
        self, instance: ClientInstance, subscription_id: int, is_terminating: bool, is_known_codec: bool, now_ms: int
    ) -> None:
        """Raise KafkaError if the push is not accepted; the instance has the reason then, which decides about its next request."""
        try:
            self._check_push(instance, subscription_id, is_terminating, is_known_codec, now_ms)
        except KafkaError as error:
            instance.last_error = error.code
            raise
        finally:
            instance.is_terminating = is_terminating
        instance.last_error = ErrorCode.NONE

    def _check_push(
        self, instance: ClientInstance, subscription_id: int, is_terminating: bool, is_known_codec: bool, now_ms: int
    ) -> None:
        if instance.is_terminating:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the client said that its last push was its last one")
        # The first push after the subscriptions may come early: clients wait 0.5 to 1.5 intervals, by chance.
        in_time = instance.last_get_ms > instance.last_push_ms
        if in_time or now_ms - instance.last_push_ms >= instance.wanted.interval_ms:
            instance.last_push_ms = now_ms
        elif not is_terminating:
            self.throttled += 1
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, TOO_EARLY)
        if subscription_id != instance.wanted.subscription_id or not instance.wanted.metrics:
            self.unknown_subscriptions += 1
            raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if not is_known_codec:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
