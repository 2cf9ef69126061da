"""One console of several clusters: each has its own links, and a switch leads from one to another."""

from __future__ import annotations

import re

import pytest

from ottla.cli.commands.console import of_clusters
from ottla.cli.errors import CommandFailed
from tests.ottla.conftest import Cli
from tests.ottla.console.conftest import Open, csrf_of, eventually

#: Links and forms that lead somewhere, except to the console's own files.
LINK = re.compile(r'(?:href|action|hx-get|data-stream)="(/[^"]*)"')


async def test_each_link_of_a_page_stays_in_its_cluster_but_for_the_switch(open_console: Open, cli: Cli) -> None:
    topic = cli.topic()
    client = await open_console(names=("west", "east"), allow_changes=True, wait=False)
    begin = await client.get("/")
    assert begin.status_code == 307 and begin.headers["location"] == "/c/west/"
    await eventually(client, "/c/east/", "has not answered yet", there=False)
    for page in (
        "/", "/topics", f"/topics/{topic}", f"/topics/{topic}/records?value=x", f"/topics/{topic}/settings?edit=retention.ms",
        f"/topics/{topic}/produce", f"/topics/{topic}/groups", "/topic-create", "/groups", "/transactions", "/reassignments",
        "/reassignments/plan", "/access", "/access/users", "/access/tokens", "/quotas", "/timeline", "/schemas", "/none",
    ):  # fmt: skip
        text = (await client.get(f"/c/east{page}")).text
        leading = [link for link in LINK.findall(text) if not link.startswith("/static/")]
        away = {link for link in leading if not link.startswith("/c/east/")}
        place = page if page in ("/topics", "/groups", "/transactions", "/reassignments", "/access", "/quotas", "/timeline",
                                 "/schemas") else "/"  # fmt: skip
        assert away == {f"/c/west{place}"}, page
        assert "/c/east/c/" not in text and leading
    assert (await client.get("/c/north/")).status_code == 404
    assert (await client.get("/healthz")).text == "ok\n"


async def test_a_change_leads_back_within_its_cluster(open_console: Open, cli: Cli) -> None:
    topic = cli.topic()
    client = await open_console(names=("west", "east"), allow_changes=True, wait=False)
    page = f"/c/east/topics/{topic}/produce"
    fields = {"csrf": await csrf_of(client, page), "key_as": "text", "value_as": "text", "value": "v"}
    done = await client.post(page, data=fields)
    assert done.status_code == 303 and done.headers["location"].startswith(f"/c/east/topics/{topic}/records?")
    streamed = (await client.get(f"/c/east/topics/{topic}/stream?value=v")).text
    assert f'href="/c/east/topics/{topic}/records?' in streamed


async def test_one_cluster_has_no_switch_and_short_links(open_console: Open) -> None:
    text = (await (await open_console(wait=False)).get("/")).text
    assert 'class="switch"' not in text and 'href="/topics"' in text


def test_values_of_several_clusters_have_their_name() -> None:
    assert of_clusters("--registry", ["http://a"], [""]) == {"": ["http://a"]}
    assert of_clusters("--admin", ["west=1@h:1", "east=1@h:2", "west=2@h:3"], ["west", "east"]) == {
        "west": ["1@h:1", "2@h:3"],
        "east": ["1@h:2"],
    }
    for wrong in ("http://a", "north=http://a", "west="):
        with pytest.raises(CommandFailed, match="names none of the clusters west, east"):
            of_clusters("--registry", [wrong], ["west", "east"])
