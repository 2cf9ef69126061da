"""Additions of a node to the tables of its broker: the object that works on them in a process beside it, and a page of the admin listener.

`/tables` says how far the tables are of topics whose partitions this broker leads, and why they wait, as JSON lines:

    /tables    /tables?topic=NAME

It names topics and places, so the same clients get it as `/story` (`ottla.admin.story`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qsl

from ottla.broker.tiers.objects import TierStore
from ottla.node.story_page import STORY, who_may_ask
from ottla.server.admin import JSON_LINES, Answer, HttpRequest
from ottla.server.config.key import Values
from ottla.server.config.node_config import NodeConfig
from ottla.server.config.remote_storage import tier_location, tier_options

USAGE = b"/tables or /tables?topic=NAME\n"


class TablePage:
    """The page of one node. `states(topic)` has the tables, or the one of a topic, as objects of JSON."""

    def __init__(
        self,
        node_id: int,
        own: Values,
        is_authorized: bool,
        host: str,
        states: Callable[[str | None], Iterator[dict[str, Any]]],
    ) -> None:
        self._node_id, self._host, self._states = node_id, host, states
        self._who: str = own[STORY] or ("off" if is_authorized else "local")

    def answer(self, request: HttpRequest) -> Answer:
        if (refusal := who_may_ask(self._who, request, self._host)) is not None:
            return refusal
        try:
            asked = dict(
                parse_qsl(request.query, strict_parsing=bool(request.query), errors="strict", max_num_fields=1)
            )
        except ValueError:  # UnicodeDecodeError is one
            return Answer(400, USAGE)
        if asked.keys() - {"topic"}:
            return Answer(400, USAGE)
        found = ({"node": self._node_id, **state} for state in self._states(asked.get("topic")))
        return Answer(200, b"".join(json.dumps(each).encode() + b"\n" for each in found), JSON_LINES)


def table_worker() -> object:
    """Make the object that works on topics' tables, in the process beside the node.

    A broker knows nothing of the libraries of tables, which cost 1.7 s of processor and 130 MB. The node, which puts everything together,
    hands it this function, whose name goes through the pipe: the import happens in that process alone.
    """
    from ottla.tables.worker import TableWorker

    return TableWorker()


def open_tier_store(config: NodeConfig) -> TierStore:
    """Open the store of remote segments, on a thread. Its library is imported by the first use, if the address needs one."""
    from ottla.tables.table_location import open_store

    return open_store(tier_location(config.own, config.static), tier_options(config.static))
