"""The time of a request has its place in the counts, however long the request has waited."""

from __future__ import annotations

from ottla.broker.fetch.session_cache import DelayTimes
from ottla.protocol.api import ApiKey
from ottla.server.network.route import LATENCY_BUCKETS, Route

#: The longest time-out that a request can have, in nanoseconds, and a second that its node did not run.
LONGEST_NS = (2**31 - 1) * 1_000_000 + 1_000_000_000


def test_a_request_that_has_waited_for_25_days_is_counted_as_others_are() -> None:
    route, times = Route(ApiKey.FETCH, lambda *_: None), DelayTimes()
    for elapsed_ns in (0, 1024, LONGEST_NS):
        route.count(elapsed_ns)
        times.add(elapsed_ns)
    assert len(route.latency_buckets) == LATENCY_BUCKETS
    assert (route.requests, times.count) == (3, 3)
    assert route.latency_ns == times.total_ns == 1024 + LONGEST_NS
