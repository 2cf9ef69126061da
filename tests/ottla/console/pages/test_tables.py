"""The page of topics that are tables: what it shows of each, and the effect of a damaged, hostile or slow store."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.needs import needs_packages

needs_packages("pyarrow", "pyiceberg", "deltalake", "obstore")

from ottla.console import table_process
from ottla.console.table_process import TableBrowser
from ottla.tables import table_look
from ottla.tables.table_location import TableLocation, open_store
from ottla.tables.table_look import TableCounts, TableLook
from tests.ottla.conftest import Cli
from tests.ottla.console.conftest import Open, eventually
from tests.ottla.tables.lakes import Lake

MARKUP = "<img src=x onerror=alert(1)>"
FORMATS = ("iceberg", "delta", "parquet")


@pytest.mark.parametrize("format_", FORMATS)
def test_a_look_has_the_counts_of_each_format(tmp_path: Path, format_: str) -> None:
    lake = Lake(str(tmp_path))
    lake.add("orders", [b"a", b"b"], format_)
    lake.add("orders", [b"c", b"\xff"], format_)
    look = TableLook(TableLocation(open_store(str(tmp_path), {})), {})
    assert look.topics() == ["orders"]
    seen = look.topic("orders")
    assert seen is not None and seen.format == format_ and (seen.commits, seen.positions) == (2, {0: 4})
    files = [each.stat().st_size for each in (tmp_path / "ottla/orders/data/00000").iterdir()]
    assert seen.counts == TableCounts(2, 3, sum(files))
    assert seen.rejected == 1 and seen.reasons == [(1, "value: it is no UTF-8: invalid start byte at byte 0")]
    assert seen.cluster_id == "a-cluster" and seen.committed_ms is not None
    assert look.topic("nothing") is None


async def test_the_page_has_the_lag_of_a_topic_by_partition(open_console: Open, cli: Cli, tmp_path: Path) -> None:
    topic = cli.topic()
    producer = Producer({"bootstrap.servers": cli.bootstrap})
    for value in "abcde":
        producer.produce(topic, value)
    producer.flush()
    lake = Lake(str(tmp_path))
    lake.add(topic, [b"a", b"b"])
    lake.add("of-another", [b"x", b"\xff"], "delta")
    cluster_id = AdminClient({"bootstrap.servers": cli.bootstrap}).list_topics(timeout=30).cluster_id
    decision = tmp_path / "ottla" / topic / "_commits" / f"{1:012}.json"
    decision.write_text(decision.read_text().replace("a-cluster", cluster_id))
    client = await open_console(tables=str(tmp_path))
    by_partition = '<td class="num">2</td><td class="num">5</td><td class="num">3</td>'
    page = await eventually(client, f"/tables?topic={topic}", by_partition)
    row = page.partition(f'href="/tables?topic={topic}"')[2].partition("</tr>")[0]
    assert "iceberg" in row and '<td class="num warn">3</td>' in row, row
    other = page.partition('href="/tables?topic=of-another"')[2].partition("</tr>")[0]
    assert "of another cluster" in other and "delta" in other
    chosen = (await client.get("/tables?topic=of-another")).text
    assert "it is no UTF-8" in chosen and "of-another__dlq" in chosen


def test_the_process_of_a_console_imports_no_library_of_tables() -> None:
    code = "import sys, ottla.console.server, ottla.console.table_process; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "starlette" in done.stdout.split()
    assert not {"pyarrow", "pyiceberg", "deltalake", "obstore"} & {*done.stdout.split()}


async def test_a_console_without_a_location_says_how_it_gets_one(open_console: Open) -> None:
    client = await open_console(wait=False)
    assert "--tables FOLDER" in (await client.get("/tables")).text


async def test_files_that_are_damaged_or_hostile_cost_their_row(open_console: Open, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    for topic in ("deep", "markup", "none", "right", "wide"):
        lake.add(topic, [b"a", b"\xff"])
    newest = {topic: tmp_path / "ottla" / topic / "metadata" / "v9.metadata.json" for topic in ("deep", "none")}
    newest["deep"].write_bytes(b"[" * 1_000_000)
    newest["none"].write_bytes(b'{"current-snapshot-id": 1, "snapshots": [{"snapshot-id": 1, "summary": []}]}')
    (tmp_path / "ottla/wide/_commits" / f"{9:012}.json").write_text(json.dumps({"positions": [1, 2]}))
    (file,) = (tmp_path / "ottla/markup/_rejected/00000").iterdir()
    file.write_bytes(b"PAR1" + MARKUP.encode() + b"PAR1")
    (tmp_path / "ottla" / MARKUP.replace("/", "")).mkdir()
    client = await open_console(tables=str(tmp_path))
    page = (await client.get("/tables")).text
    for topic, said in (
        ("deep", "is no JSON"),
        ("none", "is no metadata"),
        ("wide", "positions"),
        ("markup", "has no reasons"),
    ):
        row = page.partition(f'href="/tables?topic={topic}"')[2].partition("</tr>")[0]
        assert said in row, (topic, row)
    assert "iceberg" in page.partition("topic=right")[2].partition("</tr>")[0]
    assert MARKUP not in page and "alert(1)" not in page


@pytest.mark.chaos
async def test_a_table_that_takes_too_much_ends_its_process_and_the_others_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(str(tmp_path))
    for topic in ("a", "b", "c"):
        lake.add(topic, [b"x"])
    body = b'{"x": [' + b"[]," * 20_000_000 + b"[]]}"
    (tmp_path / "ottla/b/metadata/v9.metadata.json").write_bytes(body)
    monkeypatch.setattr(table_process, "TABLE_S", 2.0)
    monkeypatch.setattr(table_process, "MEMORY_BYTES_MAX", 1 << 30)
    browser = TableBrowser(str(tmp_path))
    try:
        found = await browser.tables()
        assert [row.topic for row in found.rows] == ["a", "b", "c"] and found.topics == 3
        assert [row.seen is not None for row in found.rows] == [True, False, True]
        assert "it takes" in str(found.rows[1].problem)
        assert await browser.tables() is found, "it is kept for some seconds"
        monkeypatch.setattr(table_process, "ENDED_MAX", 1)
        monkeypatch.setattr(table_process, "FRESH_S", 0.0)
        assert "not looked at" in str((await browser.tables()).rows[2].problem)
    finally:
        await browser.close()


async def test_a_store_that_does_not_answer_is_a_sentence_on_the_page(
    open_console: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_process, "TABLE_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        for name, value in (
            ("ACCESS_KEY_ID", "a"),
            ("SECRET_ACCESS_KEY", "s"),
            ("REGION", "r"),
            ("ALLOW_HTTP", "true"),
        ):
            monkeypatch.setenv(f"AWS_{name}", value)
        client = await open_console(tables="s3://lake/x")
        assert "it takes more than 0.5 s" in await eventually(client, "/tables", "it takes")
        assert (await client.get("/topics")).status_code == 200


async def test_what_is_read_of_rejected_records_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(str(tmp_path))
    for _ in range(4):
        lake.add("orders", [b"\xff", b"a\xff"], "parquet")
    look = TableLook(TableLocation(open_store(str(tmp_path), {})), {})
    seen = look.topic("orders")
    assert seen is not None and seen.rejected == 8 and sum(count for count, _ in seen.reasons) == 6
    monkeypatch.setattr(table_look, "REASON_BYTES_MAX", 10)
    seen = look.topic("orders")
    assert seen is not None and seen.reasons == []
