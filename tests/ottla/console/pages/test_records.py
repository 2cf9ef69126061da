"""The message browser at a node: pages, filters that scan, live tails, downloads."""

from __future__ import annotations

import asyncio
import re

import httpx
from confluent_kafka import Producer

from tests.ottla.conftest import Cli
from tests.ottla.console.conftest import Open, eventually

VALUES = [f'{{"n": {number}}}' for number in range(300)]


def filled(cli: Cli, *, partitions: int = 1) -> str:
    name = cli.topic(partitions=partitions)
    producer = Producer({"bootstrap.servers": cli.bootstrap})
    for number, value in enumerate(VALUES):
        producer.produce(
            name, value, f"k{number}", timestamp=1_700_000_000_000 + number, headers={"half": str(number % 2)}
        )
    producer.flush()
    return name


def offsets(page: str) -> list[int]:
    return [int(found) for found in re.findall(r'<span class="num mono">(\d+)</span>', page)]


async def opened(open_console: Open, name: str) -> httpx.AsyncClient:
    client = await open_console()
    await eventually(client, f"/topics/{name}", "Partitions and brokers")
    return client


def link(page: str, text: str) -> str:
    found = re.search(rf'<a href="([^"]+)">{text}', page)
    assert found is not None
    return found[1].replace("&amp;", "&")


async def test_pages_lead_from_the_newest_record_to_the_oldest_and_from_any_place_on(
    open_console: Open, cli: Cli
) -> None:
    name = filled(cli)
    client = await opened(open_console, name)
    page = (await client.get(f"/topics/{name}/records?limit=100")).text
    seen = offsets(page)
    while "Older →" in page:
        page = (await client.get(link(page, "Older"))).text
        seen += offsets(page)
    assert seen == list(range(299, -1, -1))
    for fields, first in {"from=offset&at=42": 42, "from=oldest": 0, "from=time&at=1700000000120": 120}.items():
        page = (await client.get(f"/topics/{name}/records?{fields}&partition=0&limit=10")).text
        assert offsets(page) == list(range(first, first + 10)), fields
        assert offsets((await client.get(link(page, "Newer"))).text)[0] == first + 10
    for fields, problem in {
        "from=offset&at=x": "is no offset",
        "from=time&at=soon": "no time",
        "partition=7": "there is no partition",
    }.items():
        assert problem in (await client.get(f"/topics/{name}/records?{fields}")).text, fields


async def test_partitions_are_merged_by_time(open_console: Open, cli: Cli) -> None:
    name = filled(cli, partitions=3)
    client = await opened(open_console, name)
    page = (await client.get(f"/topics/{name}/records?limit=50")).text
    assert re.findall(r"&#34;n&#34;: (\d+)}</span>", page) == [str(number) for number in range(299, 249, -1)]


async def test_a_filter_looks_at_all_records_and_streams_what_matches(open_console: Open, cli: Cli) -> None:
    name = filled(cli, partitions=2)
    client = await opened(open_console, name)
    page = (await client.get(f"/topics/{name}/records?value=%22n%22%3A+7")).text
    assert f"/topics/{name}/stream?value=" in page
    found = (await client.get(f"/topics/{name}/stream?value=%22n%22%3A+7")).text
    assert "Done: 11 of 300 records match" in found and found.count('class="record"') == 11
    by_header = (await client.get(f"/topics/{name}/stream?key=k5&key_by=whole&header=half%3D1&from=oldest")).text
    assert "Done: 1 of 300" in by_header


async def test_a_live_tail_shows_what_comes_and_ends_with_the_browser(open_console: Open, cli: Cli) -> None:
    name = filled(cli)
    client = await opened(open_console, name)
    site = client._transport.app._app.state.site

    async def read() -> None:
        await client.get(f"/topics/{name}/stream?from=live")

    reading = asyncio.create_task(read())
    async with asyncio.timeout(30):
        for _ in iter(lambda: site.access.scans, 1):
            await asyncio.sleep(0.02)
    reading.cancel()
    async with asyncio.timeout(30):
        for _ in iter(lambda: site.access.scans, 0):
            await asyncio.sleep(0.02)


async def test_downloads_are_json_lines_and_csv(open_console: Open, cli: Cli) -> None:
    name = filled(cli)
    client = await opened(open_console, name)
    lines = await client.get(f"/topics/{name}/download?format=jsonl&from=oldest&max=20")
    assert lines.headers["content-disposition"] == f'attachment; filename="{name}.jsonl"'
    assert len(lines.text.splitlines()) == 20 and '"value":"{\\"n\\": 0}"' in lines.text
    table = (await client.get(f"/topics/{name}/download?format=csv&value=299")).text
    assert table.startswith("topic,partition,offset") and table.count("\r\n") == 2 and '"{""n"": 299}"' in table
    assert (await client.get("/topics/none-such/download")).status_code == 404


async def test_markup_in_keys_values_and_headers_stays_text(open_console: Open, cli: Cli) -> None:
    name = cli.topic()
    producer = Producer({"bootstrap.servers": cli.bootstrap})
    bad = "</pre><script>alert(1)</script>\r\n\r\nevent: end\r\ndata: gone"
    producer.produce(name, bad, bad, headers={bad: bad})
    producer.flush()
    client = await opened(open_console, name)
    page = (await client.get(f"/topics/{name}/records")).text
    streamed = (await client.get(f"/topics/{name}/stream?value=script")).text
    for text in (page, streamed):
        assert "&lt;script&gt;alert" in text and "<script>alert" not in text
    assert streamed.count("event: end\n") == 1, "a value ends no event of the stream"


async def test_numbers_without_a_bound_are_refused_or_as_if_they_were_not_there(open_console: Open, cli: Cli) -> None:
    name = filled(cli)
    client = await opened(open_console, name)
    digits = "9" * 5_000
    for fields in (
        f"after={digits}.1",
        f"before=0.{digits}",
        "after=99999999999.1",
        f"from=offset&at={digits}",
        f"from=time&at={digits}",
        f"limit={digits}",
        f"from=offset&at={2**64}",
    ):
        assert (await client.get(f"/topics/{name}/records?{fields}")).status_code < 500, fields
        assert (await client.get(f"/topics/{name}/download?{fields}")).status_code < 500, fields
        assert "event: end" in (await client.get(f"/topics/{name}/stream?key=none&{fields}")).text, fields


async def test_expressions_and_json_paths_look_into_values_and_times_bound_them(open_console: Open, cli: Cli) -> None:
    name = filled(cli)
    client = await opened(open_console, name)
    for fields, found in {
        "path=$.n = 7": 1,
        "path=$.n >= 290": 10,
        'value_by=regex&value=n": 29[0-4]': 5,
        "key_by=regex&key=^k(1|2)$": 2,
        "path=$.n < 100&key_by=regex&key=9$&header=half=1": 10,
        "path=$.none": 0,
        "path=$.n >= 0&until=1700000000010": 10,
        "path=$.n >= 0&from=time&at=1700000000100&until=1700000000120": 20,
    }.items():
        text = (await client.get(f"/topics/{name}/stream?{fields}")).text
        assert f"Done: {found} of" in text, (fields, text[-300:])
        assert text.count("<details") == found
    screen = (await client.get(f"/topics/{name}/records?until=1700000000010&limit=500")).text
    assert offsets(screen) == list(range(9, -1, -1))
    for fields, problem in {
        "path=$.a ==": "Done: 0 of",
        "path==": "is no JSON path",
        "value_by=regex&value=(": "is no regular expression",
        "value_by=regex&value=a)|(b": "is no regular expression",
    }.items():
        assert problem in (await client.get(f"/topics/{name}/stream?{fields}")).text, fields
    page = (await client.get(f"/topics/{name}/records?path=$.n = 7&key_by=regex&key=k")).text
    assert 'value="$.n = 7"' in page and '<option value="regex" selected>' in page, "a link has the filter"
    lines = (await client.get(f"/topics/{name}/download?path=$.n >= 298&from=oldest")).text.splitlines()
    assert len(lines) == 2
