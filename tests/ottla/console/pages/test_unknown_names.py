"""Every page whose link names something that does not exist answers 404 with a sentence: one rule of `Site` and `Panels`, one table here."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from ottla.console.server import MENU, ROUTES
from tests.ottla.conftest import Cli
from tests.ottla.console.conftest import Open, csrf_of
from tests.ottla.registry.instances import Instance

ODD = (
    "none-such",
    "<b>x</b>&\"'",
    "no ne+%2B?=;#",
    "\u202egro\u0001up\x00",
    "ϑέμα/\N{PILE OF POO}",
    "{{ 7*7 }}{% raw %}",
    "x" * 20_000,
)
#: Each page that takes a name, with links in which NAME does not exist, and TOPIC does.
UNKNOWN = {
    "/topics/{name}": ["/topics/NAME"],
    "/topics/{name}/settings": ["/topics/NAME/settings"],
    "/topics/{name}/groups": ["/topics/NAME/groups"],
    "/topics/{name}/produce": ["/topics/NAME/produce"],
    "/topics/{name}/records": ["/topics/NAME/records", "/topics/TOPIC/records?partition=NAME"],
    "/topics/{name}/stream": ["/topics/NAME/stream", "/topics/TOPIC/stream?partition=NAME"],
    "/topics/{name}/download": ["/topics/NAME/download", "/topics/TOPIC/download?partition=NAME"],
    "/topics/{name}/story": ["/topics/NAME/story", "/topics/TOPIC/story?partition=NAME"],
    "/group": ["/group?id=NAME"],
    "/group/reset": ["/group/reset?id=NAME", "/group/reset?id=NAME&to=earliest"],
    "/schema": ["/schema?subject=NAME", "/schema?subject=SUBJECT&version=NAME"],
    "/schema/diff": [
        "/schema/diff?subject=NAME&old=1&new=2",
        "/schema/diff?subject=SUBJECT&old=NAME&new=1",
        "/schema/diff?subject=SUBJECT&old=1&new=NAME",
    ],
    "/tables": ["/tables?topic=NAME"],
    "/transactions": ["/transactions?id=NAME"],
    "/reassignments": ["/reassignments?topic=NAME&partition=0", "/reassignments?topic=TOPIC&partition=NAME"],
    "/reassignments/plan": ["/reassignments/plan?topics=NAME", "/reassignments/plan?brokers=4242"],
    "/access": ["/access?type=2&name=NAME&pattern=3&principal=User:NAME&host=*&op=2&permission=3"],
    "/access/users": ["/access/users?id=NAME&mechanism=SCRAM-SHA-256", "/access/users?id=NAME"],
    "/access/tokens": ["/access/tokens?id=NAME"],
}
#: A name is a filter there, or there is none. /chart is no page: a topic without numbers has an empty chart.
WITHOUT_NAMES = {"/", "/healthz", "/chart", "/timeline", "/topics", "/topic-create", "/groups", "/schemas", "/quotas"}
#: Links with a number that is none of the partitions or versions.
NUMBERS = ("4242", "-1", "2147483648", "9" * 5000, "0x0", "1.0")


def test_each_page_is_in_one_of_the_tables() -> None:
    pages = {route.path for route in ROUTES if "GET" in (route.methods or ())}
    assert pages == UNKNOWN.keys() | WITHOUT_NAMES
    assert {path for path, _ in MENU} <= pages


@pytest.fixture
def places(cli: Cli, registry: Instance, tmp_path: Path) -> tuple[str, str, dict[str, object]]:
    """A topic, a subject, and the options of a console that has all pages."""
    topic = cli.topic()
    subject = f"{topic}-value"
    registry.ask("POST", f"/subjects/{subject}/versions", {"schema": '"string"'})
    (tmp_path / "tables").mkdir()
    return topic, subject, {"registry": registry.url, "tables": str(tmp_path / "tables"), "allow_changes": True}


@pytest.mark.parametrize("path", UNKNOWN)
async def test_a_page_of_something_unknown_is_not_found_and_says_so(
    open_console: Open, open_secured: Open, places: tuple[str, str, dict[str, object]], path: str
) -> None:
    topic, subject, options = places
    # Without an authorizer a cluster has neither entries nor tokens, and the pages say so.
    client = await (open_secured() if path.startswith("/access") else open_console(**options))
    for link in UNKNOWN[path]:
        is_number = link.endswith("=NAME") and ("TOPIC" in link or "SUBJECT" in link)
        for name in (*ODD, *NUMBERS) if is_number else ODD:
            where = link.replace("TOPIC", topic).replace("SUBJECT", subject).replace("NAME", quote(name, safe=""))
            shown = await client.get(where)
            assert shown.status_code == 404, where[:200]
            assert '<p class="note error">' in shown.text, where[:200]
            assert shown.text.count('<p class="note error">') == 1, "one sentence"
            assert "<b>x" not in shown.text and "49{%" not in shown.text and "\x00" not in shown.text


@pytest.mark.parametrize("path", ["/group", "/group/reset", "/schema", "/schema/diff"])
async def test_a_link_without_its_name_is_not_found(
    open_console: Open, places: tuple[str, str, dict[str, object]], path: str
) -> None:
    client = await open_console(**places[2])
    shown = await client.get(path)
    assert shown.status_code == 404 and "without a name" in shown.text


async def test_what_is_there_is_found_beside_it(open_console: Open, places: tuple[str, str, dict[str, object]]) -> None:
    topic, subject, options = places
    client = await open_console(**options)
    for link in (
        f"/topics/{topic}/records?partition=0",
        f"/topics/{topic}/story?partition=0",
        f"/reassignments?topic={topic}&partition=0",
        f"/reassignments/plan?topics={topic}",
        f"/schema?subject={subject}&version=1",
        f"/schema/diff?subject={subject}&old=1&new=1",
    ):
        assert (await client.get(link)).status_code == 200, link


async def test_a_change_of_something_unknown_is_not_found(open_console: Open) -> None:
    client = await open_console(allow_changes=True)
    fields = {"csrf": await csrf_of(client, "/topic-create"), "confirm": "none-such"}
    for path in ("/topics/none-such/delete", "/topics/none-such/empty", "/group/delete?id=none-such"):
        refused = await client.post(path, data=fields)
        assert refused.status_code == 404 and "none-such" in refused.text, path


async def test_an_unknown_cluster_is_not_found(open_console: Open) -> None:
    client = await open_console(names=["north", "south"], wait=False)
    shown = await client.get("/c/%3Cb%3Eeast/topics")
    assert shown.status_code == 404 and "there is no page /c/" in shown.text
    assert shown.headers["content-type"].startswith("text/plain")
