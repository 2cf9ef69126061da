"""Metrics of a node. Hot paths increment plain ints of their own objects; a scrape reads them.

A source is a function that reads such ints and yields families of samples. The names are those of Kafka's metrics in
Prometheus, so that dashboards and alerts for Kafka work. The admin listener serves the text of a scrape for Prometheus.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.protocol.work import Work
from ottla.server.clock import Clock, run_in_turns

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

log = logging.getLogger(__name__)

COUNTER, GAUGE = "counter", "gauge"
#: The quantiles of Kafka's histograms.
QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
#: Values with more bits are counted in the last bucket.
HISTOGRAM_BUCKETS = 32


class Sample(NamedTuple):
    labels: Mapping[str, str]
    value: float


class Family(NamedTuple):
    """All samples of one name. A counter's name has no `_total`, which the exposition adds."""

    name: str
    kind: str
    doc: str
    samples: list[Sample]


Source = Callable[[], Iterable[Family]]


def gauge(name: str, doc: str, value: float, **labels: str) -> Family:
    """Return a family of one sample."""
    return Family(name, GAUGE, doc, [Sample(labels, value)])


def counter(name: str, doc: str, value: float, **labels: str) -> Family:
    """Return a family of one sample."""
    return Family(name, COUNTER, doc, [Sample(labels, value)])


class Registry:
    """All sources of a node."""

    def __init__(self) -> None:
        self._sources: list[Source] = []

    def add(self, source: Source) -> None:
        self._sources.append(source)

    def families(self) -> Iterator[Family]:
        """Yield the families of all sources; a name may occur more than once. An exception of a source is logged, and the next one follows.

        Sources with many samples yield them in several parts, so that a scrape can end its turn in between.
        """
        for source in list(self._sources):
            try:
                yield from source()
            except Exception:
                log.exception("A source of metrics failed")


class Histogram:
    """A histogram: how many values had how many bits (`quantile_of_buckets`), and the sum of all values."""

    __slots__ = ("buckets", "total")

    def __init__(self) -> None:
        self.buckets = [0] * HISTOGRAM_BUCKETS
        self.total = 0

    def add(self, value: int) -> None:
        self.buckets[min(value.bit_length(), HISTOGRAM_BUCKETS - 1)] += 1
        self.total += value


def histograms(
    name: str, doc: str, rows: Sequence[tuple[Mapping[str, str], Histogram]], unit: float = 1.0
) -> Iterator[Family]:
    """Yield the quantiles of each histogram, the number of its values and their sum. `unit` is the size of a value of 1."""
    quantiles = [
        Sample({**labels, "quantile": quantile_label(quantile)}, quantile_of_buckets(each.buckets, quantile) * unit)
        for labels, each in rows
        for quantile in QUANTILES
    ]
    yield Family(name, GAUGE, doc, quantiles)
    counts = [Sample(labels, sum(each.buckets)) for labels, each in rows]
    yield Family(f"{name}_count", GAUGE, f"{doc}: how many", counts)
    sums = [Sample(labels, each.total * unit) for labels, each in rows]
    yield Family(f"{name}_sum", GAUGE, f"{doc}: all together", sums)


def quantile_label(quantile: float) -> str:
    """Return the label that jmx_exporter makes of Kafka's percentiles: 0.50, and 0.999."""
    return f"{quantile:.2f}" if quantile <= 0.99 else f"{quantile:g}"


def quantile_of_buckets(buckets: list[int], quantile: float) -> float:
    """Return the quantile; bucket i counts values of i bits, and inside a bucket it interpolates linearly."""
    total = sum(buckets)
    if not total:
        return 0.0
    wanted, seen = quantile * total, 0
    for bits, count in enumerate(buckets):
        if count and seen + count >= wanted:
            low, high = (1 << bits - 1 if bits else 0), 1 << bits
            return low + (high - low) * (wanted - seen) / count
        seen += count
    return float(1 << len(buckets) - 1)


#: The time of a scrape in one turn of the event loop, and the number of samples between two reads of the clock.
SCRAPE_TURN_NS = 2_000_000
RENDERED_AT_ONCE = 100
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def to_metrics(families: list[Family]) -> Iterator[Metric]:
    """Convert the families to those of prometheus_client."""
    # Imported here: the import takes a tenth of a node's start, and most nodes are never scraped.
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

    for family in families:
        is_counter = family.kind == COUNTER
        metric = (CounterMetricFamily if is_counter else GaugeMetricFamily)(family.name, family.doc)
        name = f"{family.name}_total" if is_counter else family.name
        for sample in family.samples:
            # add_metric is not used, because labels may differ within a name: the sum over all topics has none.
            metric.add_sample(name, dict(sample.labels), sample.value)
        yield metric


async def scrape(registry: Registry, clock: Clock) -> bytes:
    """Return the text of one scrape, with the process's own metrics, made in turns of the event loop."""
    return await run_in_turns(clock, _scraping(registry), SCRAPE_TURN_NS)


def _scraping(registry: Registry) -> Work[bytes]:
    from prometheus_client import GC_COLLECTOR, PROCESS_COLLECTOR

    families: dict[str, Family] = {}
    for family in registry.families():
        known = families.setdefault(family.name, Family(family.name, family.kind, family.doc, []))
        known.samples.extend(family.samples)
        yield None
    parts: list[bytes] = []
    for family in families.values():
        for first in range(0, max(1, len(family.samples)), RENDERED_AT_ONCE):
            text = _render(to_metrics([family._replace(samples=family.samples[first : first + RENDERED_AT_ONCE])]))
            if first:  # HELP and TYPE may occur only once, before the samples of a name
                text = b"".join(line for line in text.splitlines(keepends=True) if not line.startswith(b"#"))
            parts.append(text)
            yield None
    parts.extend(_render(collector.collect()) for collector in (PROCESS_COLLECTOR, GC_COLLECTOR))
    return b"".join(parts)


def _render(metrics: Any) -> bytes:
    from prometheus_client import generate_latest

    registry: Any = SimpleNamespace(collect=lambda: metrics)
    return generate_latest(registry)
