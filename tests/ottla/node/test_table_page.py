"""/tables and /tiers of the admin listener: who may read them, and hostile queries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.node.tables import StatePage
from ottla.server.admin import HttpRequest, read_request


def states(topic: str | None) -> Iterator[dict[str, Any]]:
    for name in ("clicks", "orders"):
        if topic in (None, name):
            yield {"topic": name}


def get(query: str, who: str | None = None, *, is_authorized: bool = False, peer: str = "127.0.0.1") -> tuple[int, str]:
    page = StatePage("/tables", 1, {"ottla.admin.story": who}, is_authorized, "127.0.0.1", states)
    request = read_request(f"GET /tables?{query} HTTP/1.1".encode())
    assert isinstance(request, HttpRequest)
    answer = page.answer(request._replace(peer=peer, host=None))
    return answer.status, answer.body.decode()


def test_all_tables_or_that_of_a_topic() -> None:
    assert [json.loads(line) for line in get("")[1].splitlines()] == [
        {"node": 1, "topic": "clicks"},
        {"node": 1, "topic": "orders"},
    ]
    assert json.loads(get("topic=orders")[1])["topic"] == "orders"
    assert get("topic=none") == (200, "")


@pytest.mark.parametrize("query", ["topic", "name=x", "topic=a&topic=b", "topic=%ff", "&&&"])
def test_anything_else_is_refused(query: str) -> None:
    assert get(query) == (400, "/tables or /tables?topic=NAME\n")


def test_who_gets_it_is_said_by_the_nodes_file() -> None:
    assert get("", peer="10.0.0.1")[0] == 403
    assert get("", "all", peer="10.0.0.1")[0] == 200
    assert get("", is_authorized=True)[0] == 403
