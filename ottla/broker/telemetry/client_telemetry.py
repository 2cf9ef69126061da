"""Client telemetry of one broker (KIP-714): its subscriptions, its client instances, and the metrics that they pushed.

Values are kept by client: pushed sums are added up, pushed gauges replace the former value. Clients and series are bounded.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ottla.broker.telemetry.instances import ClientInstance, ClientInstances, Subscription, parse_subscription
from ottla.broker.telemetry.otlp import Labels, Point, decode
from ottla.controller.metadata.configs import ResourceType
from ottla.controller.metadata.image import MetadataDelta, MetadataImage
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.primitives import uuid_to_str
from ottla.protocol.records.compression import TooLarge, expanding
from ottla.protocol.work import Turn, Work
from ottla.server.clock import Clock
from ottla.server.config.key import ConfigError
from ottla.server.metrics import Family, Sample, counter, gauge
from ottla.server.network.context import RequestContext

log = logging.getLogger(__name__)

#: The longest text that a client may say of itself, which is a label of each of its series: longer than any name that a person reads.
ATTRIBUTE_LENGTH_MAX = 256

METRICS = "kafka_server_client_metrics"
#: Advertised only where clients' metrics are collected, as by Apache Kafka, which needs a plugin for that: librdkafka and Java's
#: clients begin to ask for subscriptions as soon as they see these APIs, and each librdkafka client prints a line about it.
TELEMETRY_APIS = frozenset((ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY))
#: The prefix of each name, so that no client can write a value under the name of one of the broker's own metrics.
PREFIX = "kafka_client_"
CLIENTS_MAX = 1_000
SERIES_OF_CLIENT_MAX = 2_000
SERIES_MAX = 50_000
#: The approximate limit of bytes of all clients' series in the text of a scrape.
SCRAPE_BYTES_MAX = 16 * 1024 * 1024
#: The bytes of one sample besides its name and the values of its labels.
SAMPLE_BYTES = 64
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]")


@dataclass(slots=True)
class PushedMetrics:
    """The metrics that one client has pushed.

    They are shown until `expires_ms`, also when the client has gone: its last push is to be scraped.
    """

    labels: Mapping[str, str]
    expires_ms: int
    values: dict[tuple[str, str, Labels], float] = field(default_factory=dict)
    #: The length of the client's text in a scrape.
    bytes: int = 0

    def size_of(self, name: str, labels: Labels) -> int:
        own = sum(len(key) + len(value) for key, value in self.labels.items())
        return SAMPLE_BYTES + len(name) + own + sum(len(key) + len(value) for key, value in labels)


class ClientSeries:
    """The series of one broker's clients."""

    def __init__(self) -> None:
        self._clients: OrderedDict[bytes, PushedMetrics] = OrderedDict()
        self._count = self._bytes = 0
        self.dropped = 0

    def __len__(self) -> int:
        return self._count

    def add(
        self, instance_id: bytes, labels: Mapping[str, str], points: Iterable[Point], now_ms: int, expires_ms: int
    ) -> None:
        """Take the points of one push. A series beyond the bounds is dropped and counted."""
        self.expire(now_ms)
        client = self._clients.setdefault(instance_id, PushedMetrics(labels, expires_ms))
        client.expires_ms = expires_ms
        self._clients.move_to_end(instance_id)
        for point in points:
            key = (exposed_name(point.name), point.kind, exposed_labels(point.labels))
            before = client.values.get(key)
            if before is None:
                size = client.size_of(key[0], key[2])
                is_full = self._count >= SERIES_MAX or self._bytes + size > SCRAPE_BYTES_MAX
                if is_full or len(client.values) >= SERIES_OF_CLIENT_MAX:
                    self.dropped += 1
                    continue
                self._count += 1
                self._bytes += size
                client.bytes += size
            client.values[key] = point.value + (before or 0.0) if point.is_delta else point.value
        if len(self._clients) > CLIENTS_MAX:
            self._remove(next(iter(self._clients)))

    def expire(self, now_ms: int) -> None:
        for instance_id in [key for key, client in self._clients.items() if client.expires_ms <= now_ms]:
            self._remove(instance_id)

    def families(self, now_ms: int) -> Iterator[Family]:
        """Yield the families of one client after the other. Where two clients disagree about a name's kind, the first one is shown."""
        self.expire(now_ms)
        kinds: dict[str, str] = {}
        for client in list(self._clients.values()):
            families: dict[str, Family] = {}
            for (name, kind, labels), value in client.values.items():
                if kinds.setdefault(name, kind) == kind:
                    family = families.setdefault(name, Family(name, kind, "Pushed by clients (KIP-714)", []))
                    family.samples.append(Sample({**dict(labels), **client.labels}, value))
            yield from families.values()

    def _remove(self, instance_id: bytes) -> None:
        removed = self._clients.pop(instance_id)
        self._count -= len(removed.values)
        self._bytes -= removed.bytes


def exposed_name(name: str) -> str:
    """Return `kafka_client_producer_record_send` for org.apache.kafka.producer.record.send.total: the exposition adds a counter's _total."""
    return PREFIX + _NOT_IN_NAMES.sub("_", name.removeprefix("org.apache.kafka.")).removesuffix("_total")


def exposed_labels(labels: Labels) -> Labels:
    """Return the labels with names that Prometheus takes; of labels that have the same name then, the last one stays."""
    named = {_NOT_IN_NAMES.sub("_", name): value for name, value in labels}
    return tuple(sorted((name if name[:1].isalpha() else f"attribute_{name}", value) for name, value in named.items()))


class Telemetry:
    """The clients' metrics of one broker. With `always_advertised` clients are asked to push also without a subscription."""

    def __init__(self, clock: Clock, always_advertised: bool = False) -> None:
        self._clock = clock
        self._always_advertised = always_advertised
        self.instances = ClientInstances()
        self.series = ClientSeries()
        self._of_connection: dict[str, bytes] = {}

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        for kind, name in {} if delta.configs is None else delta.configs.changed_resources:
            if kind == ResourceType.CLIENT_METRICS:
                self.instances.set_subscription(name, _subscription(name, image.configs.for_client_metrics(name)))

    @property
    def hidden_apis(self) -> frozenset[int]:
        """The APIs that ApiVersions leaves out. They are served all the same: a client that has seen them goes on."""
        return frozenset() if self._always_advertised or self.instances.has_subscriptions else TELEMETRY_APIS

    def metrics(self) -> Iterator[Family]:
        """Yield the counts of Kafka's ClientMetricsManager, and the metrics that clients have pushed."""
        instances, series = self.instances, self.series
        yield gauge(f"{METRICS}_instance_count", "Client instances that asked for subscriptions", len(instances))
        yield counter(f"{METRICS}_throttle", "Requests before the next push interval", instances.throttled)
        yield counter(
            f"{METRICS}_unknown_subscription_request", "Pushes for other subscriptions", instances.unknown_subscriptions
        )
        yield gauge(f"{METRICS}_series", "Series that clients have pushed", len(series))
        yield counter(
            f"{METRICS}_dropped_series",
            "Pushed values that no subscription asks for, or beyond the bounds of clients and series",
            series.dropped,
        )
        yield from series.families(self._clock.mono_ms())

    def instance(self, instance_id: bytes, context: RequestContext) -> ClientInstance:
        """Return the client's instance, which is forgotten when the connection that it used last closes."""
        connection = context.connection
        attributes = {
            "client_instance_id": uuid_to_str(instance_id),
            "client_id": (context.client_id or "")[:ATTRIBUTE_LENGTH_MAX],
            "client_software_name": connection.client_software_name[:ATTRIBUTE_LENGTH_MAX],
            "client_software_version": connection.client_software_version[:ATTRIBUTE_LENGTH_MAX],
            "client_source_address": connection.peer_host,
            "client_source_port": str(connection.peer_port),
        }
        found = self.instances.seen(instance_id, attributes, self._clock.mono_ms())
        if connection.id not in self._of_connection:
            connection_id = connection.id
            connection.on_close(lambda: self.instances.forget(self._of_connection.pop(connection_id)))
        self._of_connection[connection.id] = instance_id
        return found

    def take(
        self, instance_id: bytes, instance: ClientInstance, codec: int, metrics: bytes, bytes_max: int
    ) -> Work[None]:
        """Decompress and decode one push, and keep the values that were asked for.

        The limit is for both forms, with the same error (KAFKA-21076).
        """
        try:
            data = yield from expanding(codec, memoryview(metrics), Turn(), bytes_max)
            points, dropped = yield from decode(bytes(data), SERIES_OF_CLIENT_MAX)
        except TooLarge as error:
            raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE, error.message) from None
        except KafkaError as error:
            raise KafkaError(ErrorCode.INVALID_RECORD, error.message) from None
        labels = {
            name: instance.attributes[name] for name in ("client_id", "client_instance_id", "client_software_name")
        }
        now_ms = self._clock.mono_ms()
        asked_for = [point for point in points if instance.wanted.includes(point.name)]
        self.series.dropped += dropped + len(points) - len(asked_for)
        self.series.add(instance_id, labels, asked_for, now_ms, now_ms + instance.expiration_ms)


def _subscription(name: str, configs: Mapping[str, str]) -> Subscription | None:
    """Return None if the resource is gone, or if its values are not valid here: Kafka's controller accepts patterns that RE2
    rejects.
    """
    try:
        return parse_subscription(configs) if configs else None
    except ConfigError as error:
        log.error("The client metrics subscription %s has no effect: %s", name, error)
        return None
