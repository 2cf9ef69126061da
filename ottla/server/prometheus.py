"""Metrics for Prometheus: the text of a scrape, which the admin listener serves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ottla.protocol.work import Work
from ottla.server.clock import Clock
from ottla.server.metrics import COUNTER, Family, Registry
from ottla.server.turns import run_in_turns

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

#: The time of a scrape in one turn of the event loop, and the number of samples between two reads of the clock.
SCRAPE_TURN_NS = 2_000_000
RENDERED_AT_ONCE = 100
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def to_metrics(families: list[Family]) -> Iterator[Metric]:
    """Converts the families to those of prometheus_client."""
    # Imported here: the import takes a tenth of a node's start, and most nodes are never scraped.
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

    for family in families:
        is_counter = family.kind == COUNTER
        metric = (CounterMetricFamily if is_counter else GaugeMetricFamily)(family.name, family.doc)
        name = f"{family.name}_total" if is_counter else family.name
        for sample in family.samples:
            # Not by add_metric, because labels may differ within a name: the sum over all topics has none.
            metric.add_sample(name, dict(sample.labels), sample.value)
        yield metric


async def scrape(registry: Registry, clock: Clock) -> bytes:
    """Returns the text of one scrape, with the process's own metrics, made in turns of the event loop."""
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
            parts.append(text if first == 0 else _without_header(text))
            yield None
    parts.extend(_render(collector.collect()) for collector in (PROCESS_COLLECTOR, GC_COLLECTOR))
    return b"".join(parts)


def _render(metrics: Any) -> bytes:
    from prometheus_client import generate_latest

    return generate_latest(_Once(metrics))


class _Once:
    """An adapter of metrics for generate_latest, which calls `collect`."""

    def __init__(self, metrics: Any) -> None:
        self._metrics = metrics

    def collect(self) -> Any:
        return self._metrics


def _without_header(text: bytes) -> bytes:
    """Removes HELP and TYPE, which may occur only once, before the samples of a name."""
    return b"".join(line for line in text.splitlines(keepends=True) if not line.startswith(b"#"))
