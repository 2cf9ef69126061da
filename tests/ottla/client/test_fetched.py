"""The wanted records of a batch with many others: they are found by their position, and the event loop goes on meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from ottla.client import fetched
from ottla.client.fetched import records_between
from ottla.protocol.errors import KafkaError
from ottla.protocol.records.batch import BatchView
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.record import NewRecord, skip_records

MANY = 200_000


def batch_of(count: int, base_offset: int = 0) -> BatchView:
    records = [NewRecord(None, b"v" * (number % 200), number) for number in range(count)]
    return BatchView(memoryview(bytearray(build_batch(records, base_offset=base_offset))))


@pytest.mark.parametrize(("first", "end"), [(100, 110), (0, 3), (140, None), (90, 400), (249, 250), (250, 260)])
async def test_it_is_what_decoding_all_of_them_gives(first: int, end: int | None) -> None:
    batch = batch_of(150, 100)
    wanted = [row for row in batch.records() if row.offset >= first and (end is None or row.offset < end)]
    assert await records_between(batch, first, end) == wanted


async def test_other_tasks_run_while_a_large_batch_is_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetched, "SKIPPED_AT_ONCE", MANY // 20)
    batch = batch_of(MANY)
    turns, done = 0, False

    async def other() -> None:
        nonlocal turns
        while not done:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    assert [row.offset for row in await records_between(batch, MANY - 2, MANY)] == [MANY - 2, MANY - 1]
    assert turns >= 19, "of the skipped ones"
    done = True
    await beside


@pytest.mark.parametrize("data", [b"", b"\x10", b"\x01" + b"x" * 8, b"\xff\xff\xff\xff\xff\xff", b"\x80"])
def test_lengths_that_are_not_there_are_refused(data: bytes) -> None:
    with pytest.raises(KafkaError):
        skip_records(data, 1, 0)
