"""Windows of a scan, cursors of pages, and filters."""

from __future__ import annotations

import asyncio
import gc
import random
from typing import Any

import pytest

from ottla.client import consumer
from ottla.client.errors import ClusterError
from ottla.console import reading
from ottla.console.matching import Query
from ottla.console.reading import WINDOW_OFFSETS, cursor, read_cursor, windows
from ottla.protocol.records.batch import BatchView
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.compression import ZSTD
from ottla.protocol.records.record import Record
from tests.sim.loop import run
from tests.sim.mirror_client import ModelClient, Process
from tests.sim.mirror_model import ModelCluster


@pytest.mark.parametrize("back", [True, False])
def test_windows_cover_each_offset_once(back: bool) -> None:
    begin, ends = {0: 5, 1: 0, 2: 9}, {0: 5 + 3 * WINDOW_OFFSETS + 1, 1: 7, 2: 9}
    covered: dict[int, list[tuple[int, int]]] = {0: [], 1: []}
    for starts, stops in windows(begin, ends, back):
        for index in starts:
            covered[index].append((starts[index], stops[index]))
    for index, ranges in covered.items():
        ranges.sort(reverse=back)
        assert ranges == sorted(ranges, reverse=back)
        flat = [offset for start, stop in sorted(ranges) for offset in range(start, stop)]
        assert flat == list(range(begin[index], ends[index]))


def test_a_cursor_is_read_back_and_anything_else_is_none() -> None:
    assert read_cursor(cursor({1: 20, 0: 17})) == {0: 17, 1: 20}
    assert [read_cursor(text) for text in ("", "0", "0.x", "0.1-", "-1.2", "0.1;1.2")] == [None] * 6


def test_a_filter_needs_all_that_is_asked_for() -> None:
    record = Record(0, 0, b"key-1", b"the value", (("source", b"web"), ("empty", None)))

    def fits(**wanted: object) -> bool:
        return Query("t", **wanted).has_texts(record)

    assert fits() and fits(key="ey", value="val", header="source=we") and fits(header="empty")
    assert not fits(key="ey", key_by="whole") and fits(key="key-1", key_by="whole")
    assert not fits(value="x") and not fits(header="empty=a") and not fits(header="other")
    assert not Query("t", key="k").has_texts(Record(0, 0, None, None))


def written(*batches: list[bytes]) -> ModelCluster:
    cluster = ModelCluster("west", random.Random(1))
    cluster.create("t", 1)
    for values in batches:
        rows = [(None, value, 1) for value in values]
        cluster.topics["t"].logs[0].append(build_batch(rows, compression=ZSTD), len(values))
    return cluster


class Tail:
    """A live view of a topic without records."""

    def __init__(self) -> None:
        self.cluster = written()
        self.rows = reading.tail(ModelClient(self.cluster, Process(self.cluster.rng)), Query("t", start="live"))

    async def next(self) -> tuple[list[bytes | None], int]:
        """Return the next values, and how many were left out."""
        while True:
            found = await anext(self.rows)
            if isinstance(found, list) and found:
                left_out = await anext(self.rows)
                return [each.record.value for each in found], left_out if isinstance(left_out, int) else 0


def test_a_live_view_holds_one_batch_at_a_time_and_shows_the_newest_that_have_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A poll returns 8 MB, which may be hundreds of MB when decompressed: all records were decoded, and 200 of them shown."""
    monkeypatch.setattr(reading, "SCREEN_BYTES_MAX", 5_000)
    decoded: list[int] = []
    between = consumer.records_between

    async def counted(batch: BatchView, *arguments: Any) -> list[Record]:
        gc.collect()
        decoded.append(sum(isinstance(each, Record) for each in gc.get_objects()))
        return await between(batch, *arguments)

    monkeypatch.setattr(consumer, "records_between", counted)

    async def main() -> None:
        tail = Tail()
        log = tail.cluster.topics["t"].logs[0]
        first = asyncio.ensure_future(tail.next())
        await asyncio.sleep(2)
        for batch in range(3):
            values = [b"%04d" % (100 * batch + number) + b"x" * 996 for number in range(100)]
            log.append(build_batch([(None, value, 1) for value in values], compression=ZSTD), 100)
        values, left_out = await first
        assert [value[:4] for value in values if value] == [b"0299", b"0298", b"0297", b"0296", b"0295"]
        assert left_out == 295
        await tail.rows.aclose()

    run(main())
    assert len(decoded) == 3 and max(decoded) - decoded[0] <= 110


def test_a_batch_that_is_too_large_when_it_is_decompressed_is_named_and_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "BATCH_BYTES_MAX", 50_000)
    cluster = written([b"first"], [b"0" * 100_000], [b"last"])

    async def main() -> None:
        client = ModelClient(cluster, Process(cluster.rng))
        with pytest.raises(
            ClusterError, match=r"offset 1 of partition t-0 cannot be read.* decompresses to over 50000"
        ):
            await reading.screen(client, Query("t", start="oldest"))
        found = await reading.screen(client, Query("t", start="offset", at="2"))
        assert [each.record.value for each in found.found] == [b"last"]

    run(main())


def test_a_screen_ends_where_its_bytes_do() -> None:
    cluster = written(*([b"%d" % number + b"x" * 4_000_000] for number in range(8)))

    async def main() -> None:
        client = ModelClient(cluster, Process(cluster.rng))
        found = await reading.screen(client, Query("t", start="oldest"))
        assert len(found.found) == 4 and found.cut

    run(main())
