"""Fetch (1): record batches for consumers and followers. A hot path: answered at once, or when enough bytes are there.

How it is served is broker/fetch/fetching.py.

v5 log_start_offset · v7 sessions (KIP-227) · v9 current_leader_epoch · v11 rack and preferred_read_replica (KIP-392) · v12 flexible,
last_fetched_epoch and diverging_epoch · v13 topic ids · v15 replica_state · v16 node_endpoints (KIP-951) · v18 the follower's
high watermark. Records leave as views of the mapped segments, never copied here.
"""

from __future__ import annotations

from ottla.broker.fetch.fetching import FetchedBroker, Fetching
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer


def handle(broker: FetchedBroker, request: FetchRequest, context: RequestContext) -> Answer[FetchResponse]:
    return serve(Fetching(broker, request, context), request)


def serve(fetching: Fetching, request: FetchRequest) -> Answer[FetchResponse]:
    if fetching.reader.is_follower:
        fetching.record_positions()
        if request.max_wait_ms > 0 and fetching.gathers():
            return fetching.wait(request.max_wait_ms)
    found = fetching.attempt()
    if (
        found >= fetching.min_bytes
        or fetching.must_answer
        or request.max_wait_ms <= 0
        or not fetching.session.partitions
    ):
        return fetching.response()
    return fetching.wait(request.max_wait_ms)
