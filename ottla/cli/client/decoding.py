"""The records of a batch between two offsets, decoded in turns: one batch can have a million records, of which fifty are wanted."""

from __future__ import annotations

import asyncio

from ottla.protocol.records.batch import BatchView
from ottla.protocol.records.record import Record, iter_records, skip_records

#: Records that are decoded, and skipped, in one turn of the event loop: 5 to 10 ms.
DECODED_AT_ONCE = 5_000
SKIPPED_AT_ONCE = 50_000


async def records_between(batch: BatchView, first: int, end: int | None) -> list[Record]:
    """Return the records of a batch from `first` on, and before `end`.

    Raises:
        KafkaError: the batch is malformed, as far as it was read.
    """
    data = batch.expand()
    skipped, at = 0, 0
    if (
        batch.count == batch.last_offset_delta + 1
    ):  # it has each offset, so that those before `first` are told by their number
        wanted = min(max(0, first - batch.base_offset), batch.count)
        while skipped < wanted:
            step = min(SKIPPED_AT_ONCE, wanted - skipped)
            at = skip_records(data, step, at)
            skipped += step
            await asyncio.sleep(0)
    found: list[Record] = []
    left = iter_records(
        data, batch.count - skipped, batch.base_offset, batch.base_timestamp, batch.append_time, start=at
    )
    for number, record in enumerate(left, 1):
        if end is not None and record.offset >= end:
            break
        if record.offset >= first:
            found.append(record)
        if not number % DECODED_AT_ONCE:
            await asyncio.sleep(0)
    return found
