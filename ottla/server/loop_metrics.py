"""Idle ratio of the node's event loop, under the names of Kafka's thread pools: one loop does the work of both.

It is the share of time between two scrapes in which the loop's thread used no CPU. Both spellings of the names are
exported, because exporters differ in how they write "percent".
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from dataclasses import dataclass

from ottla.server.clock import Clock
from ottla.server.metrics import Family, gauge

POOLS = (
    ("kafka_server_kafkarequesthandlerpool_requesthandleravgidle", "Share of time in which the event loop is idle"),
    ("kafka_network_socketserver_networkprocessoravgidle", "Share of time in which the event loop is idle"),
)


@dataclass(slots=True)
class LoopMetrics:
    """A source of metrics, which is called on the event loop's thread."""

    clock: Clock
    _last_cpu_s: float = -1.0
    _last_ms: int = -1
    _idle: float = 1.0

    def __call__(self) -> Iterator[Family]:
        usage = resource.getrusage(getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF))
        cpu_s, now_ms = usage.ru_utime + usage.ru_stime, self.clock.mono_ms()
        if self._last_ms >= 0 and now_ms > self._last_ms:
            busy = (cpu_s - self._last_cpu_s) * 1000 / (now_ms - self._last_ms)
            self._idle = min(1.0, max(0.0, 1.0 - busy))
        self._last_cpu_s, self._last_ms = cpu_s, now_ms
        for name, doc in POOLS:
            yield gauge(f"{name}_percent", doc, self._idle)
            yield gauge(f"{name}percent", doc, self._idle)
        yield gauge(
            "kafka_network_requestchannel_requestqueuesize", "Requests are handled as they come: there is no queue", 0
        )
