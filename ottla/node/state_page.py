"""A page of the admin listener with what a broker knows of the topics whose partitions it leads, as JSON lines.

    /tables    how far the tables of topics are, and why they wait
    /tiers     how far the copies to remote storage are, and why they wait; each with ?topic=NAME for one topic

They name topics and places, so the same clients get them as `/story` (`ottla.admin.story`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qsl

from ottla.node.story_page import STORY, who_may_ask
from ottla.server.admin import JSON_LINES, Answer, HttpRequest
from ottla.server.config.key import Values


class StatePage:
    """One such page of one node. `states(topic)` has what is known, of all topics or of one, as objects of JSON."""

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
