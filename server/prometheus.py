"""Metrics for Prometheus: one collector over the registry, served by prometheus_client from a thread of its own.

The thread only waits: reading the counts is done on the event loop, where they are changed, so a scrape sees one moment.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from server.metrics import COUNTER, Family, Registry

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

#: A loop that cannot answer a scrape within this long has other troubles; Prometheus gives up after 10 s by default.
COLLECT_TIMEOUT_S = 5.0


def to_metrics(families: list[Family]) -> Iterator[Metric]:
    """The families as prometheus_client has them."""
    # Imported here: it takes a tenth of a node's start, and most nodes are never scraped.
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

    for family in families:
        kind = CounterMetricFamily if family.kind == COUNTER else GaugeMetricFamily
        names = list(family.samples[0].labels) if family.samples else []
        metric = kind(family.name, family.doc, labels=names)
        for sample in family.samples:
            metric.add_metric([sample.labels[name] for name in names], sample.value)
        yield metric


def render(registry: Registry) -> bytes:
    """The text of one scrape."""
    from prometheus_client import CollectorRegistry, generate_latest

    collectors = CollectorRegistry(auto_describe=False)
    collectors.register(_Collector(registry.collect))
    return generate_latest(collectors)


class _Collector:
    def __init__(self, collect: Any) -> None:
        self._collect = collect

    def collect(self) -> Iterator[Metric]:
        return to_metrics(self._collect())

    def describe(self) -> list[Metric]:
        """Nothing: describing would collect."""
        return []


class PrometheusEndpoint:
    """Serves `/metrics` on a port, as a part of a node."""

    def __init__(self, registry: Registry, host: str, port: int) -> None:
        self._registry = registry
        self._host = host
        self._port = port
        self._server: Any = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port that was bound."""
        port: int = self._server.server_port
        return port

    async def start(self) -> None:
        from prometheus_client import GC_COLLECTOR, PROCESS_COLLECTOR, CollectorRegistry, start_http_server

        loop = asyncio.get_running_loop()

        async def collect() -> list[Family]:
            return self._registry.collect()

        def collect_from_thread() -> list[Family]:
            return asyncio.run_coroutine_threadsafe(collect(), loop).result(COLLECT_TIMEOUT_S)

        collectors = CollectorRegistry(auto_describe=False)
        for collector in (_Collector(collect_from_thread), PROCESS_COLLECTOR, GC_COLLECTOR):
            collectors.register(collector)
        self._server, self._thread = start_http_server(self._port, self._host, collectors)

    async def stop(self) -> None:
        if self._server is not None:
            # It waits for the server's thread, which may be waiting for this loop.
            await asyncio.get_running_loop().run_in_executor(None, self._server.shutdown)
            self._server.server_close()
