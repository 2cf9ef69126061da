"""Additions of a node to its broker: the object that works on tables in a process beside it, the store of remote segments, and a page of both.

For the topics whose partitions the broker leads, the page says as JSON lines how far their tables and their remote storage are,
and why they wait:

    /tables    /tables?topic=NAME
    /tiers     /tiers?topic=NAME

They name topics and places, so the same clients get them as `/story` (`ottla.admin.story`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from ottla.node.story_page import STORY, who_may_ask
from ottla.server.admin import JSON_LINES, Answer, HttpRequest
from ottla.server.config.key import Values
from ottla.server.config.node_config import NodeConfig
from ottla.server.config.remote_storage import tier_location, tier_options
from ottla.server.worker_process import give_way

if TYPE_CHECKING:  # only a broker with remote storage imports it
    from ottla.broker.tiers.objects import TierStore


class StatePage:
    """The page of one node. `states(topic)` returns the known facts, of all topics or of one, as objects of JSON."""

    def __init__(
        self,
        path: str,
        node_id: int,
        own: Values,
        is_authorized: bool,
        host: str,
        states: Callable[[str | None], Iterator[dict[str, Any]]],
    ) -> None:
        self._usage = f"{path} or {path}?topic=NAME\n".encode()
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
            return Answer(400, self._usage)
        if asked.keys() - {"topic"}:
            return Answer(400, self._usage)
        found = ({"node": self._node_id, **state} for state in self._states(asked.get("topic")))
        return Answer(200, b"".join(json.dumps(each).encode() + b"\n" for each in found), JSON_LINES)


def table_worker() -> object:
    """Make the object that works on topics' tables, in the process beside the node.

    A broker knows nothing of the libraries of tables, which cost 1.7 s of processor and 130 MB. The node, which puts everything together,
    hands it this function, whose name goes through the pipe: the import happens in that process alone.
    """
    from ottla.tables.worker import TableWorker

    return TableWorker(prepared=give_way)


def open_tier_store(config: NodeConfig) -> TierStore:
    """Open the store of remote segments, on a thread. Its library is imported by the first use, if the address needs one."""
    from ottla.tables.table_location import open_store

    return open_store(tier_location(config.own, config.static), tier_options(config.static))
