"""Metrics of requests and connections, read from routes and listeners."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ottla.protocol.errors import ErrorCode
from ottla.server.config.key import LONG_MAX
from ottla.server.metrics import COUNTER, GAUGE, QUANTILES, Family, Sample, quantile_label, quantile_of_buckets
from ottla.server.network.listener import Listener
from ottla.server.network.pauses import RequestBytes
from ottla.server.network.route import Route

#: Latency buckets count units of 1024 ns.
MS_PER_UNIT = 1024 / 1_000_000
NS_PER_MS = 1_000_000
#: A listener has samples for at most this many names and versions of libraries: a hostile client could send a new one with each
#: connection.
SOFTWARE_MAX = 50
#: Kafka's name, its description, and the field of LoginCounts.
LOGIN_COUNTS = (
    ("successful_authentication", "Clients authenticated", "succeeded"),
    ("failed_authentication", "Logins that failed", "failed"),
    ("successful_reauthentication", "Sessions renewed", "reauthenticated"),
    ("failed_reauthentication", "Renewals that failed", "reauthentication_failed"),
    ("expired_connections_killed", "Connections closed because their session had expired", "expired"),
)


def request_metrics(routes: Sequence[Route]) -> Iterator[Family]:
    """Count, times and errors per API; APIs without a request are left out."""
    used = [route for route in routes if route.requests]
    requests = "kafka_network_requestmetrics_requests"
    yield Family(requests, COUNTER, "Requests answered", [Sample({"request": r.name}, r.requests) for r in used])
    times = [Times(route.name, route.latency_buckets, route.requests, route.latency_ns) for route in used]
    yield from time_metrics("totaltimems", "Milliseconds from a request to its answer", times)
    errors = [
        Sample({"request": route.name, "error": ErrorCode(code).name}, count)
        for route in used
        for code, count in route.errors.items()
    ]
    yield Family("kafka_network_requestmetrics_errors", COUNTER, "Requests that failed as a whole", errors)


class Times(NamedTuple):
    """The times of the requests of one API, in the buckets of a route (`Route.latency_buckets`)."""

    request: str
    buckets: list[int]
    requests: int
    total_ns: int


def time_metrics(name: str, doc: str, times: Sequence[Times]) -> Iterator[Family]:
    """Yield one of the times in Kafka's RequestMetrics."""
    name = f"kafka_network_requestmetrics_{name}"
    quantiles = [
        Sample(
            {"request": each.request, "quantile": quantile_label(quantile)},
            quantile_of_buckets(each.buckets, quantile) * MS_PER_UNIT,
        )
        for each in times
        for quantile in QUANTILES
    ]
    yield Family(name, GAUGE, doc, quantiles)
    counts = [Sample({"request": each.request}, each.requests) for each in times]
    yield Family(f"{name}_count", GAUGE, "Requests whose time was taken", counts)
    sums = [Sample({"request": each.request}, each.total_ns / NS_PER_MS) for each in times]
    yield Family(f"{name}_sum", GAUGE, "Milliseconds of all requests together", sums)


def _software(listeners: Sequence[Listener]) -> Iterator[Sample]:
    """Count connections by the library that ApiVersions has named (KIP-511).

    Clients choose the names; beyond a number of them they are counted as "other".
    """
    for listener in listeners:
        counts = Counter((each.client_software_name, each.client_software_version) for each in listener.connections)
        shown = counts.most_common(SOFTWARE_MAX)
        left = counts.total() - sum(count for _, count in shown)
        for (name, version), count in (*shown, *([(("other", ""), left)] if left else ())):
            labels = {"listener": listener.name, "client_software_name": name, "client_software_version": version}
            yield Sample(labels, count)


def listener_metrics(listeners: Sequence[Listener]) -> Iterator[Family]:
    """Yield connections and bytes per listener."""
    prefix = "kafka_server_socket_server_metrics"

    def each(name: str, kind: str, doc: str, attribute: str) -> Family:
        samples = [Sample({"listener": listener.name}, getattr(listener, attribute)) for listener in listeners]
        return Family(f"{prefix}_{name}", kind, doc, samples)

    open_now = [Sample({"listener": listener.name}, len(listener.connections)) for listener in listeners]
    yield Family(f"{prefix}_connection_count", GAUGE, "Connections open now", open_now)
    software = f"{prefix}_connections_software"
    yield Family(software, GAUGE, "Connections open now by their clients' library", list(_software(listeners)))
    yield each("connection_creation", COUNTER, "Connections accepted", "accepted")
    yield each("connection_rejected", COUNTER, "Connections above a limit", "rejected")
    yield each("connection_throttled", COUNTER, "Connections above the quota of their address", "throttled")
    yield each("connection_refused_input", COUNTER, "Connections closed because of what came in", "refused")
    yield each("connection_unread", COUNTER, "Pauses because the client did not read its replies", "unread")
    yield each("connection_held_up", COUNTER, "Pauses because too many replies waited for another one", "held_up")
    logins = [(listener.name, listener.logins.counts) for listener in listeners if listener.logins is not None]
    for name, doc, attribute in LOGIN_COUNTS:
        samples = [Sample({"listener": listener}, getattr(counts, attribute)) for listener, counts in logins]
        yield Family(f"{prefix}_{name}", COUNTER, doc, samples)
    yield each("outgoing_byte", COUNTER, "Bytes sent", "bytes_out")
    yield each("incoming_byte", COUNTER, "Bytes received", "bytes_in")


def memory_metrics(requests: RequestBytes) -> Iterator[Family]:
    """Yield Kafka's gauges of its memory pool: queued.max.request.bytes."""
    prefix = "kafka_network_socketserver_memorypool"
    available = max(0, requests.limit - requests.taken) if requests.limit > 0 else LONG_MAX
    doc = "Bytes of large requests that are arriving"
    yield Family(f"{prefix}used", GAUGE, doc, [Sample({}, requests.taken)])
    yield Family(f"{prefix}available", GAUGE, "Bytes that more of them may take", [Sample({}, available)])
    doc = "How often a connection waited because queued.max.request.bytes were taken"
    yield Family(f"{prefix}waits", COUNTER, doc, [Sample({}, requests.waits)])
