"""/story of the admin listener: who may read it, hostile queries, and bounds."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest

from ottla.broker.groups.group_stories import GroupStories
from ottla.broker.transactions.transaction_stories import TransactionStories
from ottla.node.story_page import ANSWER_BYTES_MAX, NAME_LENGTH_MAX, NodeStories, StoryPage
from ottla.server.admin import HttpRequest, read_request
from ottla.server.story import ENTRIES_MAX, Asker, Stories


class PageHarness:
    def __init__(self, who: str | None = None, *, is_authorized: bool = False, host: str = "127.0.0.1") -> None:
        partitions: Stories[tuple[str, int]] = Stories("partition", lambda: 9)
        self.stories = NodeStories(
            GroupStories("group", lambda: 7),
            TransactionStories("transactional id", lambda: 8),
            partitions,
            Stories("table", lambda: 10),
        )
        self.page = StoryPage(1, {"ottla.admin.story": who}, is_authorized, host, lambda: self.stories)

    def get(self, query: str, peer: str = "127.0.0.1", host: str | None = None) -> tuple[int, str]:
        request = read_request(f"GET /story?{query} HTTP/1.1".encode())
        assert isinstance(request, HttpRequest)
        answer = self.page.answer(request._replace(peer=peer, host=host))
        return answer.status, answer.body.decode()


def test_each_kind_of_story_is_found_by_its_name() -> None:
    page = PageHarness()
    page.stories.groups.cause = "JoinGroup", Asker("app", "/10.0.0.3")
    page.stories.groups.add("günther & söhne", "joins")
    page.stories.transactional_ids.add("t", "begins")
    page.stories.partitions.add(("orders", 3), "leads")
    status, text = page.get(f"group={quote('günther & söhne', safe='')}")
    assert status == 200 and json.loads(text) == {
        "node": 1, "time_ms": 7, "first_ms": 7, "times": 1, "cause": "JoinGroup", "client_id": "app", "host": "/10.0.0.3", "text": "joins",
    }  # fmt: skip
    assert json.loads(page.get("transactional_id=t")[1])["text"] == "begins"
    assert json.loads(page.get("topic=orders&partition=3")[1])["text"] == "leads"
    assert page.get("topic=orders&partition=4") == (200, "")


@pytest.mark.parametrize(
    "query",
    [
        "",
        "group",
        "user=x",
        "group=a&group=b",
        "group=a&transactional_id=b",
        "group=a&topic=b&partition=0",
        "topic=orders",
        "topic=orders&partition=x",
        "topic=orders&partition=-1",
        "topic=orders&partition=\N{SUPERSCRIPT TWO}",
        "group=%ff",
        "&&&",
        f"group={'x' * (NAME_LENGTH_MAX + 1)}",
    ],
)
def test_another_query_is_answered_with_what_there_is(query: str) -> None:
    status, text = PageHarness().get(query)
    assert status == 400 and text.startswith("/story?group=NAME")


def test_a_long_story_is_answered_with_its_newest_entries() -> None:
    page = PageHarness()
    for number in range(ENTRIES_MAX):
        page.stories.groups.add("g", f"{number}: " + "%s " * 40, tuple("\N{SNOWMAN}" * 200 for _ in range(40)))
    status, text = page.get("group=g")
    assert status == 200 and len(text) <= ANSWER_BYTES_MAX
    assert json.loads(text.splitlines()[-1])["text"].startswith(f"{ENTRIES_MAX - 1}: ")
    assert not json.loads(text.splitlines()[0])["text"].startswith("0: ")


def test_names_with_line_ends_stay_on_one_line() -> None:
    page = PageHarness()
    page.stories.groups.add("g", "Member %s joins", ("a\r\nb\x1b[2J",))
    assert len(page.get("group=g")[1].splitlines()) == 1


@pytest.mark.parametrize(
    ("who", "is_authorized", "peer", "host", "status"),
    [
        (None, False, "127.0.0.1", None, 200),
        (None, False, "::1", None, 200),
        (None, False, "::ffff:127.0.0.1", None, 200),
        (None, False, "10.0.0.7", None, 403),
        (None, True, "127.0.0.1", None, 403),
        ("local", True, "127.0.0.1", None, 200),
        ("local", True, "10.0.0.7", None, 403),
        ("all", True, "10.0.0.7", None, 200),
        ("off", False, "127.0.0.1", None, 403),
        ("local", False, "127.0.0.1", "localhost:9644", 200),
        ("local", False, "127.0.0.1", "rebound.example.com:9644", 403),
        ("local", False, "", None, 403),
    ],
)  # fmt: skip
def test_who_gets_a_story_is_said_by_the_nodes_file(
    who: str | None, is_authorized: bool, peer: str, host: str | None, status: int
) -> None:
    page = PageHarness(who, is_authorized=is_authorized, host="0.0.0.0")
    page.stories.groups.add("g", "joins")
    found, text = page.get("group=g", peer, host)
    assert found == status and (status == 200) == ("joins" in text)


def test_a_controller_has_no_stories() -> None:
    page = StoryPage(1, {"ottla.admin.story": None}, False, "127.0.0.1", lambda: None)
    request = HttpRequest("/story", head=False, keep=False, query="group=g", peer="127.0.0.1")
    assert page.answer(request).status == 200 and page.answer(request).body == b""
