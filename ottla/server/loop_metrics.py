"""Idle ratio of the node's event loop, under the names of Kafka's threads: one loop does the work of all.

It is the share of time between two scrapes in which the loop's thread used no CPU. Both spellings of the names are
exported, because exporters differ in how they write "percent".
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from dataclasses import dataclass

from ottla.server.clock import Clock
from ottla.server.metrics import Family, gauge

DOC = "Share of time in which the event loop is idle"
POOLS = (
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle",
    "kafka_network_socketserver_networkprocessoravgidle",
)
#: KIP-1190 and KIP-1229: the thread of the controller's events, which only controllers have, and the thread that loads metadata.
CONTROLLER_THREAD = "kafka_controller_controllereventmanager_avgidleratio"
LOADER_THREAD = "kafka_server_metadataloader_avgidleratio"


@dataclass(slots=True)
class LoopMetrics:
    """A source of metrics, which is called on the event loop's thread."""

    clock: Clock
    is_controller: bool = False
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
        for name in POOLS:
            yield gauge(f"{name}_percent", DOC, self._idle)
            yield gauge(f"{name}percent", DOC, self._idle)
        yield gauge(LOADER_THREAD, DOC, self._idle)
        if self.is_controller:
            yield gauge(CONTROLLER_THREAD, DOC, self._idle)
        yield gauge(
            "kafka_network_requestchannel_requestqueuesize", "Requests are handled as they come: there is no queue", 0
        )
