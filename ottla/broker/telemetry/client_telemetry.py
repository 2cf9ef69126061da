"""Client telemetry of one broker (KIP-714): its subscriptions, its client instances, and what they pushed."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from ottla.broker.telemetry.instances import ClientInstance, ClientInstances
from ottla.broker.telemetry.otlp import decode
from ottla.broker.telemetry.series import SERIES_OF_CLIENT_MAX, ClientSeries
from ottla.broker.telemetry.subscriptions import Subscription, parse_subscription
from ottla.controller.metadata.configs import ResourceType
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.primitives import uuid_to_str
from ottla.protocol.records.compression import TooLarge, expanding
from ottla.protocol.work import Turn, Work
from ottla.server.clock import Clock
from ottla.server.config.errors import ConfigError
from ottla.server.metrics import Family, counter, gauge
from ottla.server.network.context import RequestContext

log = logging.getLogger(__name__)

#: Of what a client says of itself: it is a label of each of its series. Longer than any name that a person reads.
ATTRIBUTE_LENGTH_MAX = 256

METRICS = "kafka_server_client_metrics"
#: Advertised only where clients' metrics are collected, as by Apache Kafka, which needs a plugin for that: librdkafka and Java's
#: clients begin to ask for subscriptions as soon as they see these APIs, and each librdkafka client prints a line about it.
TELEMETRY_APIS = frozenset((ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY))


class Telemetry:
    """The clients' metrics of one broker. `always_advertised`: also without a subscription."""

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
        """The counts of Kafka's ClientMetricsManager, and the metrics that clients have pushed."""
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
        """Returns the client's instance, which is forgotten when the connection that it used last closes."""
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
        """Decompresses and decodes one push, and keeps the values that were asked for.

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
    """Returns None if the resource is gone, or if its values are not valid here: Kafka's controller takes patterns that RE2 has not."""
    try:
        return parse_subscription(configs) if configs else None
    except ConfigError as error:
        log.error("The client metrics subscription %s has no effect: %s", name, error)
        return None
