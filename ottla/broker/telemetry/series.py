"""The values that clients have pushed, by client: sums are added up, gauges replaced. Bounded in clients and series."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ottla.broker.telemetry.otlp import Labels, Point
from ottla.server.metrics import Family, Sample

#: Before each name, so that no client can write a value under the name of one of the broker's own metrics.
PREFIX = "kafka_client_"
CLIENTS_MAX = 1_000
SERIES_OF_CLIENT_MAX = 2_000
SERIES_MAX = 50_000
#: Of all clients' series in the text of a scrape, about.
SCRAPE_BYTES_MAX = 16 * 1024 * 1024
#: Of one sample, besides names and values of its labels.
SAMPLE_BYTES = 64
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]")


@dataclass(slots=True)
class PushedMetrics:
    """What one client has pushed. It is shown until `expires_ms`, also when the client has gone: its last push is to be scraped."""

    labels: Mapping[str, str]
    expires_ms: int
    values: dict[tuple[str, str, Labels], float] = field(default_factory=dict)
    #: Of the text that a scrape has for it.
    bytes: int = 0

    def size_of(self, name: str, labels: Labels) -> int:
        own = sum(len(key) + len(value) for key, value in self.labels.items())
        return SAMPLE_BYTES + len(name) + own + sum(len(key) + len(value) for key, value in labels)


class ClientSeries:
    """All series of one broker's clients."""

    def __init__(self) -> None:
        self._clients: OrderedDict[bytes, PushedMetrics] = OrderedDict()
        self._count = self._bytes = 0
        self.dropped = 0

    def __len__(self) -> int:
        return self._count

    def add(
        self, instance_id: bytes, labels: Mapping[str, str], points: Iterable[Point], now_ms: int, expires_ms: int
    ) -> None:
        """Takes the points of one push. A series beyond the bounds is dropped and counted."""
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
        """Yields the families of one client after the other. Where two clients disagree about a name's kind, the first one is shown."""
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
    """Returns `kafka_client_producer_record_send` for org.apache.kafka.producer.record.send.total: the exposition adds a counter's _total."""
    return PREFIX + _NOT_IN_NAMES.sub("_", name.removeprefix("org.apache.kafka.")).removesuffix("_total")


def exposed_labels(labels: Labels) -> Labels:
    """Returns the labels with names that Prometheus takes; of labels that have the same name then, the last one stays."""
    named = {_NOT_IN_NAMES.sub("_", name): value for name, value in labels}
    return tuple(sorted((name if name[:1].isalpha() else f"attribute_{name}", value) for name, value in named.items()))
