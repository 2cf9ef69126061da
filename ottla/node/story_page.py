"""The page `/story` of the admin listener: the last decisions about a group, a partition, a transactional id or a topic's table.

They are JSON lines (`server/story.py`).

    /story?group=NAME    /story?topic=NAME&partition=N    /story?transactional_id=ID    /story?table=TOPIC

A story has the names and hosts of clients. The admin listener knows no users, so `ottla.admin.story` says from where it may be asked. A
name is percent-encoded UTF-8. Each node has what it decided itself: a group's former coordinator has what happened before the failover.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from ottla.server.admin import JSON_LINES, Answer, HttpRequest, is_local
from ottla.server.config.key import Values
from ottla.server.story import Stories, StoryLine

STORY = "ottla.admin.story"
#: Bytes of an answer; older entries are left out of a longer one.
ANSWER_BYTES_MAX = 256 * 1024
#: Characters of a name: Kafka's strings have no more bytes.
NAME_LENGTH_MAX = 32_767
USAGE = b"/story?group=NAME, /story?topic=NAME&partition=N, /story?transactional_id=ID or /story?table=NAME\n"


class NodeStories(NamedTuple):
    """The stories of a broker."""

    groups: Stories[str]
    transactional_ids: Stories[str]
    partitions: Stories[tuple[str, int]]
    #: The stories of topics' tables, by the topic.
    tables: Stories[str]

    def of(self, asked: dict[str, str]) -> list[StoryLine] | None:
        """Return the story that a query asks for; None if it asks for none or for several."""
        match asked:
            case {"group": group} if len(asked) == 1:
                return self.groups.of(group)
            case {"table": topic} if len(asked) == 1:
                return self.tables.of(topic)
            case {"transactional_id": transactional_id} if len(asked) == 1:
                return self.transactional_ids.of(transactional_id)
            case {"topic": topic, "partition": index} if len(asked) == 2 and index.isascii() and index.isdecimal():
                return self.partitions.of((topic, int(index[:10])))
        return None


class StoryPage:
    """The page of one node. `stories()` is None until the broker is made, and for good on a controller."""

    def __init__(
        self, node_id: int, own: Values, is_authorized: bool, host: str, stories: Callable[[], NodeStories | None]
    ) -> None:
        """Take `is_authorized`, which is True if there is an authorizer, and `host`, the host of the listener."""
        self._stories = stories
        self._node_id = node_id
        self._who: str = own[STORY] or ("off" if is_authorized else "local")
        self._host = host

    def answer(self, request: HttpRequest) -> Answer:
        if (refusal := who_may_ask(self._who, request, self._host)) is not None:
            return refusal
        try:
            pairs = parse_qsl(
                request.query, keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=2
            )
        except ValueError:  # UnicodeDecodeError is one
            return Answer(400, USAGE)
        asked = dict(pairs)
        if len(asked) < len(pairs) or any(len(value) > NAME_LENGTH_MAX for value in asked.values()):
            return Answer(400, USAGE)
        stories = self._stories()
        found = [] if stories is None else stories.of(asked)
        return Answer(400, USAGE) if found is None else Answer(200, lines(self._node_id, found), JSON_LINES)


def who_may_ask(who: str, request: HttpRequest, host: str) -> Answer | None:
    """Return the refusal of a request that `ottla.admin.story` does not allow."""
    if who == "off":
        return Answer(403, f"stories are switched off: {STORY}=local or all in the node's file\n".encode())
    if who == "local" and not is_local(request, host):
        return Answer(403, f"stories are for this machine alone: {STORY}=all in the node's file\n".encode())
    return None


def lines(node_id: int, story: list[StoryLine]) -> bytes:
    """Return a line of JSON for each entry, the oldest first."""
    found: list[bytes] = []
    size = 0
    for each in reversed(story):
        entry: dict[str, Any] = {"node": node_id, **each._asdict()}
        line = json.dumps(entry).encode() + b"\n"
        size += len(line)
        if size > ANSWER_BYTES_MAX:
            break
        found.append(line)
    return b"".join(reversed(found))
