"""The state of topics' tables, which each broker knows of the partitions that it leads (`/tables` of its admin listener).

Kafka has no API for it: the brokers' admin listeners are asked.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

from ottla.client.admin_listeners import page_of
from ottla.client.errors import ClusterError
from ottla.client.failures import Failure, Kind

TIMEOUT_S = 10.0


class TableStates(NamedTuple):
    """The states as objects of JSON, in the order of nodes, and why a node has given none."""

    #: `node`, `topic`, `format`, `location`, `partitions`, `waits` (None if it does not) and counts: `broker/tables/table_report.py`.
    states: list[dict[str, Any]]
    failures: dict[int, Failure]


async def table_states(listeners: Mapping[int, str], topic: str | None = None) -> TableStates:
    """Ask the admin listeners, which are the addresses by node, about all tables or that of a topic."""
    page = "/tables" if topic is None else f"/tables?{urlencode({'topic': topic})}"
    found = await asyncio.gather(*(_ask(address, page) for address in listeners.values()))
    states: list[dict[str, Any]] = []
    failures = {}
    for node, answer in sorted(zip(listeners, found, strict=True), key=lambda each: each[0]):
        if isinstance(answer, Failure):
            failures[node] = answer
        else:
            states += answer
    return TableStates(states, failures)


async def _ask(address: str, page: str) -> list[dict[str, Any]] | Failure:
    try:
        found: list[Any] = [json.loads(line) for line in (await page_of(address, page, TIMEOUT_S)).splitlines()]
    except Failure as fault:
        return fault
    except (ValueError, RecursionError):
        found = [None]
    if all(isinstance(each, dict) for each in found):
        return found
    return ClusterError(f"{address} answers with no tables", "an older node has none", Kind.WRONG)
