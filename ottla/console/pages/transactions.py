"""Transactions: those that are open, how long, and on which partitions; and how to abort them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.client import transactions
from ottla.client.cluster import ClusterClient
from ottla.console.pages.stories import of_transaction
from ottla.console.site import Site, chosen

#: The start is looked up for this many transactions: each of many tasks may have its own transactional id.
DESCRIBED_MAX = 300
OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")


class Row(NamedTuple):
    """A transactional id. `open_s` is how long its transaction has been open, or None if none is open."""

    transactional_id: str
    state: str
    producer_id: int
    coordinator: int
    open_s: float | None
    timeout_ms: int | None
    partitions: list[str]

    @property
    def is_open(self) -> bool:
        return self.state in OPEN_STATES

    @property
    def is_overdue(self) -> bool:
        """Return whether the coordinator should already have aborted it."""
        return self.open_s is not None and self.timeout_ms is not None and self.open_s * 1000 > self.timeout_ms


async def load_rows(cluster: ClusterClient) -> list[Row]:
    """Return all transactional ids, the longest open ones first."""
    listed = await transactions.list_transactions(cluster)
    by_node: dict[int, list[str]] = {}
    for found in sorted(listed, key=lambda row: row.state not in OPEN_STATES)[:DESCRIBED_MAX]:
        by_node.setdefault(found.coordinator, []).append(found.transactional_id)
    states = {}
    for node, names in by_node.items():
        for state in await transactions.describe_at(cluster, node, names):
            states[state.transactional_id] = state
    now_ms = time.time() * 1000
    rows = []
    for found in listed:
        known = states.get(found.transactional_id)
        started_ms = -1 if known is None else known.transaction_start_time_ms
        is_open = found.state in OPEN_STATES and started_ms >= 0
        rows.append(
            Row(
                found.transactional_id,
                found.state,
                found.producer_id,
                found.coordinator,
                max(0.0, (now_ms - started_ms) / 1000) if is_open else None,
                None if known is None else known.transaction_timeout_ms,
                [] if known is None else [f"{row.topic}-{index}" for row in known.topics for index in row.partitions],
            )
        )
    return sorted(rows, key=lambda row: (not row.is_open, -(row.open_s or 0), row.transactional_id))


async def page(request: Request) -> Response:
    site: Site = request.app.state.site

    async def load() -> list[Row]:
        return await load_rows(site.access.panels)

    shown = await site.panels.show("transactions", load)
    name = request.query_params.get("id")
    rows = shown.value or []
    return site.render(
        request,
        "transactions.html",
        shown=shown,
        rows=[row for row in rows if row.is_open or not request.query_params.get("open")][:DESCRIBED_MAX],
        found=len(rows),
        chosen_id=name,
        story=await of_transaction(site, name) if name else None,
        chosen=chosen(
            shown,
            name and f"transactional id {name}",
            (row for row in rows if row.transactional_id == name),
        ),
    )


async def abort(request: Request) -> Response:
    site: Site = request.app.state.site
    name = request.query_params.get("id", "")

    async def make(cluster: ClusterClient, fields: Mapping[str, str]) -> str:
        await transactions.describe_transaction(cluster, name)
        await transactions.abort_transaction(cluster, name)
        return f"the transaction of {name} was aborted, and its producer is fenced"

    return await site.change(request, name, make, "/transactions")


ROUTES = [Route("/transactions", page), Route("/transactions/abort", abort, methods=["POST"])]
