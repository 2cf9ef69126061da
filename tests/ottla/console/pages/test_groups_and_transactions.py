"""Groups of several kinds, resets of offsets with a preview, open transactions and their abort, over a node."""

from __future__ import annotations

import asyncio
import html

from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.client.admin_listeners import AdminAddresses
from ottla.client.groups import GroupDescription
from ottla.console.pages.groups import DescribedGroupPage, OffsetPlace
from tests.ottla.conftest import Cli
from tests.ottla.console.conftest import Open, csrf_of, eventually


def committed_group(cli: Cli, name: str, group: str) -> None:
    """A topic with ten records, of which the group has committed four."""
    producer = Producer({"bootstrap.servers": cli.bootstrap})
    for number in range(10):
        producer.produce(name, str(number))
    producer.flush()
    consumer = Consumer({"bootstrap.servers": cli.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(name, 0, 4)], asynchronous=False)
    consumer.close()


async def test_a_group_shows_its_lag_and_a_reset_sets_what_its_preview_has_shown(open_console: Open, cli: Cli) -> None:
    name, group = cli.topic(), "console/<b>&group"
    await asyncio.to_thread(committed_group, cli, name, group)
    client = await open_console(allow_changes=True)
    listed = (await client.get("/groups", params={"q": "console/"})).text
    assert "console/&lt;b&gt;&amp;group" in listed and "<b>&group" not in listed
    page = (await client.get("/group", params={"id": group})).text
    assert "Empty" in page and f"{name}-0" in page and '<td class="num warn">6</td>' in page
    await eventually(client, f"/topics/{name}/groups", '<td class="num warn">6</td>')
    preview = (await client.get("/group/reset", params={"id": group, "to": "earliest"})).text
    assert "4 come again" in preview
    token = preview.partition('name="csrf" value="')[2].partition('"')[0]
    offsets = html.unescape(preview.partition('name="offsets" value="')[2].partition('"')[0])
    fields = {"csrf": token, "confirm": group, "offsets": offsets}
    for wrong in ("", "[]", "x", '[["t", 0, -5]]', '[["t"]]', "{}"):
        refused = await client.post("/group/reset", params={"id": group}, data=fields | {"offsets": wrong})
        assert refused.status_code == 422, wrong
    assert (await client.post("/group/reset", params={"id": group}, data=fields)).status_code == 303
    assert '<td class="num warn">10</td>' in (await client.get("/group", params={"id": group})).text
    for to in ("soon", "-"):
        assert (
            "note error" in (await client.get("/group/reset", params={"id": group, "to": to})).text.partition("<h1>")[2]
        )
    assert (await client.post("/group/delete", params={"id": group}, data=fields)).status_code == 303
    assert "GROUP_ID_NOT_FOUND" in (await client.get("/group", params={"id": group})).text


def test_partitions_without_a_commit_are_counted_beside_the_lag() -> None:
    """The records of these partitions are not part of the lag, as in Kafka's tools; the page shows the number of such
    partitions.
    """
    places = [OffsetPlace("t", 0, 4, 10, 6, None), OffsetPlace("t", 1, None, 10_000, None, "member")]
    described = DescribedGroupPage(GroupDescription("g", "Stable", "classic", "range"), places)
    assert (described.lag, described.uncommitted) == (6, 1)


async def test_an_open_transaction_is_shown_and_aborted(open_console: Open, cli: Cli) -> None:
    name, transactional = cli.topic(), "console <i>txn"
    producer = Producer({"bootstrap.servers": cli.bootstrap, "transactional.id": transactional})
    await asyncio.to_thread(producer.init_transactions)
    producer.begin_transaction()
    producer.produce(name, "uncommitted")
    await asyncio.to_thread(producer.flush)
    client = await open_console(allow_changes=True)
    page = await eventually(client, "/transactions", f"{name}-0")
    assert "console &lt;i&gt;txn" in page and "Ongoing" in page
    link = {"id": transactional}
    its_page = "/transactions?id=console%20%3Ci%3Etxn"
    fields = {"csrf": await csrf_of(client, its_page), "confirm": transactional}
    assert (await client.post("/transactions/abort", params=link, data=fields)).status_code == 303
    await eventually(client, its_page, "Abort the transaction of", there=False)


async def test_a_group_that_is_not_there_says_so(open_console: Open) -> None:
    client = await open_console()
    assert "GROUP_ID_NOT_FOUND" in (await client.get("/group?id=none")).text
    assert (await client.post("/group/delete?id=none", data={"confirm": "none"})).status_code == 403


async def test_stories_are_on_the_pages_of_groups_partitions_and_transactions(open_console: Open, cli: Cli) -> None:
    name, group, transactional = cli.topic(), "story/<b>group", "story <i>txn"
    await asyncio.to_thread(committed_group, cli, name, group)
    producer = Producer({"bootstrap.servers": cli.bootstrap, "transactional.id": transactional})
    await asyncio.to_thread(producer.init_transactions)
    client = await open_console(admin=AdminAddresses(port=cli.admin_port))
    page = (await client.get("/group", params={"id": group})).text
    assert "Offsets were committed" in page and "<b>group" not in page
    assert f"Leader {name}-0 starts at leader epoch 0" in (await client.get(f"/topics/{name}/story?partition=0")).text
    shown = (await client.get("/transactions", params={"id": transactional})).text
    assert "Story of story &lt;i&gt;txn" in shown and "InitProducerId" in shown and "<i>txn" not in shown
    assert f"/topics/{name}/story?partition=0" in await eventually(client, f"/topics/{name}", "story?partition=0")


async def test_without_an_admin_listener_a_page_says_how_stories_are_had(open_console: Open, cli: Cli) -> None:
    client = await open_console()
    assert "--admin-port" in (await client.get(f"/topics/{cli.topic()}/story")).text
