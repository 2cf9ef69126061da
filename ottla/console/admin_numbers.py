"""The numbers that only the brokers' admin listeners have: memory, CPU, delay of the event loop, connections, bytes in and out.

Apache Kafka has no such listener; pages then say that these numbers are missing.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from ottla.client.admin_listeners import Metric, metrics_of, read_admin
from ottla.client.failures import Failure

SCRAPE_TIMEOUT_S = 3.0

BYTES_IN = "kafka_server_brokertopicmetrics_bytesin_total"
BYTES_OUT = "kafka_server_brokertopicmetrics_bytesout_total"
CPU = "process_cpu_seconds_total"
MEMORY = "process_resident_memory_bytes"
LOOP_DELAY = "ottla_event_loop_lag_ms"
CONNECTIONS = "kafka_server_socket_server_metrics_connection_count"
FREE_BYTES = "ottla_log_directory_free_bytes"
NAMES = frozenset({BYTES_IN, BYTES_OUT, CPU, MEMORY, LOOP_DELAY, CONNECTIONS, FREE_BYTES})


class Numbers(NamedTuple):
    """One broker's numbers in one scrape; counters are since its start. A number is None if the listener does not have it."""

    bytes_in: float | None = None
    bytes_out: float | None = None
    cpu_s: float | None = None
    memory_bytes: float | None = None
    loop_delay_ms: float | None = None
    connections: float | None = None
    free_bytes: float | None = None


async def scrape(address: str) -> Numbers | Failure:
    """Read one admin listener on a thread. Return the failure instead of raising it."""
    try:
        text = await asyncio.to_thread(read_admin, address, "/metrics", SCRAPE_TIMEOUT_S)
    except Failure as fault:
        return fault
    return numbers_of(metrics_of(text, NAMES))


def numbers_of(metrics: dict[Metric, float]) -> Numbers:
    """Sum the series of each counter. For the delay of the event loop take the highest quantile."""
    found: dict[str, list[float]] = {}
    for (name, labels), value in metrics.items():
        # A series for a topic is also part of the series without a topic.
        if not any(label == "topic" for label, _ in labels):
            found.setdefault(name, []).append(value)

    def total(name: str) -> float | None:
        return sum(found[name]) if name in found else None

    delays = found.get(LOOP_DELAY)
    free = found.get(FREE_BYTES)
    return Numbers(
        total(BYTES_IN),
        total(BYTES_OUT),
        total(CPU),
        total(MEMORY),
        None if delays is None else max(delays),
        total(CONNECTIONS),
        None if free is None else min(free),
    )
