"""The overview, topics and their settings at a node, as a browser without scripts gets them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from jinja2 import Environment, FileSystemLoader

from ottla.client.topics import EARLIEST_LOCAL
from ottla.console.server import MENU
from ottla.console.site import FOLDER
from ottla.console.texts import FILTERS
from tests.ottla.conftest import Cli
from tests.ottla.console.conftest import Open, csrf_of, eventually


async def test_the_overview_says_what_serves_and_what_is_wrong(open_console: Open) -> None:
    client = await open_console()
    page = (await client.get("/")).text
    assert "<small>node</small> 1</b><span>is the active controller" in page
    assert "Nothing is wrong" in page and "Metadata quorum" in page
    assert "known to brokers' admin listeners only" in page
    part = (await client.get("/", headers={"hx-request": "true"})).text
    assert "<html" not in part and 'id="live"' in part


def test_commands_in_advice_are_markup_and_no_backticks() -> None:
    templates = Environment(loader=FileSystemLoader(FOLDER / "templates"), autoescape=True)
    templates.filters.update(FILTERS)
    parts: Any = templates.get_template("parts.html").module
    assert parts.marked("run `ottla <x>` now") == 'run <span class="mono">ottla &lt;x&gt;</span> now'


async def test_a_cluster_that_does_not_answer_leaves_a_page_that_says_so(open_console: Open) -> None:
    client = await open_console(bootstrap="127.0.0.1:1", wait=False)
    page = await client.get("/")
    assert page.status_code == 200 and "has not answered yet" in page.text
    assert (await client.get("/topics")).status_code == 200
    settings = await client.get("/topics/t/settings")
    assert settings.status_code == 200 and "cannot connect to 127.0.0.1:1" in settings.text


async def test_topics_are_listed_found_and_sorted(open_console: Open, cli: Cli) -> None:
    small, large = cli.topic(), cli.topic(partitions=12)
    client = await open_console()
    assert small in (await client.get("/topics", params={"q": small})).text
    assert large not in (await client.get("/topics", params={"q": small + "x"})).text
    by_size = (await client.get("/topics", params={"sort": "-partitions"})).text
    assert by_size.index(large) < by_size.index(small)
    assert (await client.get("/topics", params={"sort": "__class__", "page": "x"})).status_code == 200
    picture = (await client.get(f"/topics/{large}")).text
    assert picture.count('class="cell leader"') == 12 + 1, "one is in the legend"


def test_each_page_of_the_menu_has_a_key() -> None:
    keys = (FOLDER / "static/console.js").read_text().partition("const page = {")[2].partition("}")[0]
    assert [text.split('"')[1] for text in keys.split(",")] == [path for path, _ in MENU]


async def test_a_topic_that_was_made_since_the_last_sample_is_found(open_console: Open, cli: Cli) -> None:
    client = await open_console(interval_s=3600.0)
    name, second = cli.topic(), cli.topic()
    assert (await client.get(f"/topics/{name}/records")).status_code == 200
    assert (await client.get(f"/topics/{second}")).status_code == 200


async def test_a_log_whose_beginning_is_in_remote_storage_has_both_starts(
    open_console: Open, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, name = await open_console(), cli.topic()
    assert "First on disk" not in (await client.get(f"/topics/{name}")).text

    async def later(cluster: object, topic: str, which: int) -> dict[int, int]:
        assert (topic, which) == (name, EARLIEST_LOCAL)
        return {0: 4_217}

    monkeypatch.setattr("ottla.client.topics.tier_offsets", later)
    page = await eventually(client, f"/topics/{name}", "First on disk")
    assert "4,217</td>" in page


async def test_settings_show_where_a_value_comes_from_and_are_changed_in_their_row(
    open_console: Open, cli: Cli
) -> None:
    name = cli.topic()
    client = await open_console(allow_changes=True)
    page = f"/topics/{name}/settings"
    plain = (await client.get(page)).text
    assert 'aria-label="Edit retention.ms"' in plain and "How long records are kept" in plain
    assert "<b>7 days</b>" in plain and 'name="confirm"' not in plain
    fold = plain.index("Tiered storage: ")
    assert plain.index("min.insync.replicas") < fold < plain.index("remote.storage.enable")
    editing = (await client.get(page, params={"edit": "retention.ms"})).text
    assert 'name="key" value="retention.ms"' in editing and 'value="604800000"' in editing
    fields = {"csrf": await csrf_of(client, f"{page}?edit=retention.ms"), "confirm": name, "key": "retention.ms"}
    assert (await client.post(f"/topics/{name}/set", data=fields | {"value": "61 s"})).status_code == 303
    changed = (await client.get(page, params={"changed": "1"})).text
    assert "61000" in changed and "1 minute 1 second" in changed and ">topic</span>" in changed
    for value, problem in {"soon": "retention.ms", "7 GB": "is not given in"}.items():
        wrong = await client.post(f"/topics/{name}/set", data=fields | {"value": value})
        assert wrong.status_code == 422 and problem in wrong.text
    await client.post(f"/topics/{name}/set", data=fields | {"unset": "1"})
    assert "61000" not in (await client.get(page)).text


async def test_a_topic_is_created_with_settings_in_units(open_console: Open, cli: Cli) -> None:
    name = f"{cli.topic()}-made"
    client = await open_console(allow_changes=True)
    fields = {
        "csrf": await csrf_of(client, "/topic-create"),
        "confirm": name,
        "partitions": "2",
        "setting.cleanup.policy": "compact",
        "setting.retention.ms": "3 days",
        "settings": "segment.bytes=64 MB\nnone.such=1",
    }
    refused = await client.post("/topic-create", data=fields)
    assert refused.status_code == 422 and "none.such" in refused.text
    assert f'value="{name}"' in refused.text and 'value="3 days"' in refused.text, "the form is as it was"
    done = await client.post("/topic-create", data=fields | {"settings": "segment.bytes=64 MB"})
    assert done.status_code == 303 and done.headers["location"].startswith(f"/topics/{name}?")
    settings = (await client.get(f"/topics/{name}/settings", params={"changed": "1"})).text
    assert "3 days" in settings and "64 MB" in settings and "compact" in settings


async def test_forms_that_lack_a_name_or_a_number_change_nothing(open_console: Open, cli: Cli) -> None:
    name = cli.topic()
    client = await open_console(allow_changes=True)
    fields = {"csrf": await csrf_of(client, f"/topics/{name}/settings?edit=retention.ms"), "confirm": name}
    nameless = await client.post(f"/topics/{name}/set", data=fields | {"key": " ", "value": "1"})
    assert nameless.status_code == 422 and "Its name is missing" in nameless.text
    made = {"csrf": await csrf_of(client, "/topic-create"), "confirm": f"{name}-made", "replicas": "1"}
    for wrong in ({"partitions": "two"}, {"partitions": "-2"}, {"replicas": "40000"}):
        refused = await client.post("/topic-create", data=made | wrong)
        assert refused.status_code == 422 and "partitions and replicas are numbers" in refused.text
        assert all(f'value="{each}"' in refused.text for each in wrong.values()), "the form is as it was"
    assert f"{name}-made" not in await asyncio.to_thread(cli.ok, "topic", "list")


async def test_a_topic_is_emptied_by_its_own_name_and_stays(open_console: Open, cli: Cli) -> None:
    name = cli.topic()
    await asyncio.to_thread(cli.ok, "produce", name, stdin="a\nb\n")
    client = await open_console(allow_changes=True)
    token = await csrf_of(client, f"/topics/{name}/settings?edit=retention.ms")
    other = await client.post(f"/topics/{name}/empty", data={"csrf": token, "confirm": f"{name}x"})
    assert other.status_code == 422
    assert (await asyncio.to_thread(cli.ok, "consume", name)).split() == ["a", "b"]
    done = await client.post(f"/topics/{name}/empty", data={"csrf": token, "confirm": name})
    assert done.status_code == 303
    assert await asyncio.to_thread(cli.ok, "consume", name) == ""


async def test_a_name_that_is_markup_stays_text(open_console: Open) -> None:
    client = await open_console()
    for page in ("/topics?q=<script>alert(1)</script>", "/timeline?place=%22><img src=x>", "/topics/<b>x</b>"):
        text = (await client.get(page)).text
        assert "<script>alert" not in text and "<img src=x" not in text and "<b>x" not in text
