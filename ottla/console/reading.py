"""Reading of records for a page: one screen of them, or a scan that goes through a topic in windows until it is stopped.

Memory holds one response of at most 8 MB, one of its batches decompressed (BATCH_BYTES_MAX), and the page's SCREEN_BYTES_MAX,
or one larger record.

A window is a range of offsets of each partition. Its records are filtered as they arrive, so that memory holds the matches and
one response. A scan from the newest records takes one window after the other backwards, and reads each window forwards.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

from ottla.client import topics
from ottla.client.cluster import ClusterClient
from ottla.client.consumer import PARTITION_BYTES_MAX, Consumer
from ottla.client.errors import ClusterError
from ottla.client.failures import Failure, Kind
from ottla.client.fetched import recreated_texts
from ottla.client.partitions import TopicPartition
from ottla.client.values import INT64_MAX, number_in
from ottla.console.matching import Decode, Found, Query, RecordFilter
from ottla.protocol.errors import KafkaError
from ottla.protocol.records.record import Record

LIMIT_MAX = 500
#: A screen ends after this many bytes or seconds, and shows what it has.
SCREEN_BYTES_MAX = 16 * 1024 * 1024
SCREEN_S_MAX = 6.0
#: A batch that is larger when it is decompressed is not read. Producers' batches of 1 MB rarely have a tenth of it.
BATCH_BYTES_MAX = 64 * 1024 * 1024
#: The bytes of each partition in one Fetch of a screen: most of a larger response would be decoded in vain.
SCREEN_FETCH_BYTES = 128 * 1024
#: The first window of a scan has this many offsets of a partition, so that its matches are shown soon; a later window has at
#: most the second number.
FIRST_WINDOW_OFFSETS = 500
WINDOW_OFFSETS = 20_000
STARTS = ("newest", "oldest", "offset", "time", "live")
#: If a live tail gets more at once, it leaves the rest out, and says how many.
TAIL_ROWS_MAX = 200
#: The largest numbers in a link: partitions below 10^10 and offsets of int64.
_CURSOR = re.compile(r"[0-9]{1,10}\.[0-9]{1,19}(-[0-9]{1,10}\.[0-9]{1,19})*")


class RecordScreen(NamedTuple):
    """Records in the order of the page, and the places where the pages before (`older`) and after it (`newer`) begin.

    `cut` means that not all were read.
    """

    found: list[Found]
    older: dict[int, int] | None
    newer: dict[int, int] | None
    cut: bool = False


class ReadProgress(NamedTuple):
    """The progress of a scan: the offsets that were read of all, the records that match, and whether it has ended."""

    passed: int
    total: int
    matched: int
    #: The number of records that the filter did not compare.
    not_seen: int = 0


async def bounds(cluster: ClusterClient, query: Query) -> tuple[dict[int, int], dict[int, int]]:
    """Return the offset to begin at and to end at in each partition.

    Raises:
        Failure: there is no such topic, partition, offset or time.
    """
    wanted = None if query.partition is None else [query.partition]
    ends = await topics.list_offsets(cluster, query.topic, topics.LATEST, wanted)
    first = await topics.list_offsets(cluster, query.topic, topics.EARLIEST, ends)
    if query.until:
        ends = await topics.offsets_at(cluster, query.topic, "the end", _time(query.until), first, ends)
    if query.before is not None:
        ends = {index: min(max(query.before.get(index, end), first[index]), end) for index, end in ends.items()}
    if query.after is not None:
        begin = {index: min(max(query.after.get(index, end), first[index]), end) for index, end in ends.items()}
        return begin, ends
    if query.start in ("offset", "time"):
        if query.start == "offset" and number_in(query.at, 0, INT64_MAX) is None:
            raise Failure(f"{query.at[:80]!r} is no offset", "an offset is a number", Kind.WRONG)
        at = _time(query.at) if query.start == "time" else query.at
        return await topics.offsets_at(cluster, query.topic, "the start", at, first, ends), ends
    return first, ends


def _time(text: str) -> str:
    """Return a time as the client library takes it: a day alone begins at midnight, and digits are milliseconds."""
    if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        return f"{text}T00:00:00"
    return f"@{text}" if text.isdecimal() else text


async def screen(cluster: ClusterClient, query: Query) -> RecordScreen:
    """Return one page of records without a filter: the newest ones, or those from a place on."""
    begin, ends = await bounds(cluster, query)
    # With many partitions each one gives its share, so that a page of a large topic is as quick as one of a small topic.
    share = max(2, -(-4 * query.limit // max(1, len(ends))))
    window = min(query.limit, share)
    if query.goes_back:
        starts = {index: max(begin[index], end - window) for index, end in ends.items()}
        stops = ends
    else:
        starts = begin
        stops = {index: min(ends[index], start + window) for index, start in begin.items()}
    found, cut = await _read(cluster, query.topic, starts, stops)
    found.sort(key=lambda each: (each.record.timestamp, each.partition, each.record.offset), reverse=query.goes_back)
    shown, rest = found[: query.limit], found[query.limit :]
    if query.goes_back:
        edge = dict(starts)
        for each in rest:
            edge[each.partition] = max(edge[each.partition], each.record.offset + 1)
        older = edge if any(edge[index] > begin[index] for index in edge) else None
        return RecordScreen(shown, older, None, cut)
    edge = dict(stops)
    for each in rest:
        edge[each.partition] = min(edge[each.partition], each.record.offset)
    return RecordScreen(shown, None, edge if any(edge[index] < ends[index] for index in edge) else None, cut)


async def _read(
    cluster: ClusterClient, topic: str, starts: Mapping[int, int], stops: Mapping[int, int]
) -> tuple[list[Found], bool]:
    found: list[Found] = []
    size = 0
    consumer = _consumer(cluster, topic, starts, stops, SCREEN_FETCH_BYTES)
    try:
        async with asyncio.timeout(SCREEN_S_MAX):
            async for consumed in consumer.fetch():
                for record in consumed.records:
                    size += size_of(record)
                    if found and size > SCREEN_BYTES_MAX:
                        return found, True
                    found.append(Found(consumed.partition, record))
    except TimeoutError:
        return found, True
    return found, False


async def scan(
    cluster: ClusterClient, query: Query, decode: Decode | None = None
) -> AsyncIterator[list[Found] | ReadProgress]:
    """Go through the topic, from the newest record back or from a place on, and yield matches and the progress.

    It ends with the topic, or when LIMIT_MAX records match. With `goes_back` the matches of a window come newest first.
    """
    async with closing(RecordFilter(query, decode)) as wanted:
        begin, ends = await bounds(cluster, query)
        matched = 0
        total = sum(ends[index] - begin[index] for index in ends)
        for starts, stops in windows(begin, ends, query.goes_back):
            kept: list[Found] = []
            async for consumed in _consumer(cluster, query.topic, starts, stops).fetch():
                hits = await wanted.hits(consumed)
                if query.goes_back:
                    # The newest records of a window are wanted, and they are read last.
                    kept = _last((kept + hits)[-LIMIT_MAX:])
                elif hits:
                    yield hits[: LIMIT_MAX - matched]
                    matched += len(hits)
                    if matched >= LIMIT_MAX:
                        return
                passed = _passed(begin, starts, stops, query.goes_back, ends)
                yield ReadProgress(passed, total, matched + len(kept), wanted.not_seen)
                await asyncio.sleep(0)
            if kept:
                kept.sort(key=lambda each: (each.record.timestamp, each.record.offset), reverse=True)
                yield kept[: LIMIT_MAX - matched]
                matched += len(kept)
                if matched >= LIMIT_MAX:
                    return
        yield ReadProgress(total, total, matched, wanted.not_seen)


@asynccontextmanager
async def closing(made: RecordFilter) -> AsyncIterator[RecordFilter]:
    try:
        yield made
    finally:
        await made.close()


def windows(
    begin: Mapping[int, int], ends: Mapping[int, int], back: bool
) -> Iterable[tuple[dict[int, int], dict[int, int]]]:
    """Yield ranges that cover `begin` to `ends` of each partition, or the last one first with `back`.

    Each is larger than the one before.
    """
    begin, ends = dict(begin), dict(ends)
    size = FIRST_WINDOW_OFFSETS
    while left := {index: end for index, end in ends.items() if end > begin[index]}:
        if back:
            starts = {index: max(begin[index], end - size) for index, end in left.items()}
            yield starts, left
            ends.update(starts)
        else:
            stops = {index: min(end, begin[index] + size) for index, end in left.items()}
            yield {index: begin[index] for index in left}, stops
            begin.update(stops)
        size = min(2 * size, WINDOW_OFFSETS)


async def tail(
    cluster: ClusterClient, query: Query, decode: Decode | None = None
) -> AsyncIterator[list[Found] | int | str]:
    """Yield new records that match, newest first, for ever.

    A number is the count of records that were left out; a text is a message for the page.
    """
    partitions = None if query.partition is None else [query.partition]
    async with closing(RecordFilter(query, decode)) as wanted:
        ends = await topics.list_offsets(cluster, query.topic, topics.LATEST, partitions)
        places: dict[TopicPartition, int] = {(query.topic, index): end for index, end in ends.items()}
        consumer = _Reader(cluster, places, reset=topics.EARLIEST, batch_bytes_max=BATCH_BYTES_MAX)
        while True:
            kept: list[Found] = []
            seen = 0
            async for consumed in consumer.poll_each():
                hits = await wanted.hits(consumed)
                seen += len(hits)
                kept = sorted(kept + hits, key=lambda each: (each.record.timestamp, each.record.offset))
                kept = _last(kept[-TAIL_ROWS_MAX:])
            for text in recreated_texts(consumer.recreated):
                yield text
            yield kept[::-1]
            if seen > len(kept):
                yield seen - len(kept)


async def export(
    cluster: ClusterClient, query: Query, records_max: int, decode: Decode | None = None
) -> AsyncIterator[Found]:
    """Yield the records from a place on that match, at most `records_max`."""
    async with closing(RecordFilter(query, decode)) as wanted:
        begin, ends = await bounds(cluster, query)
        if query.goes_back:
            share = -(-records_max // max(1, len(ends)))
            begin = {index: max(first, ends[index] - share) for index, first in begin.items()}
        given = 0
        async for consumed in _consumer(cluster, query.topic, begin, ends).fetch():
            for found in await wanted.hits(consumed):
                yield found
                given += 1
                if given >= records_max:
                    return


def _last(found: list[Found]) -> list[Found]:
    """Return the last of these records, as many as have SCREEN_BYTES_MAX together, but at least one."""
    size = 0
    for count, each in enumerate(reversed(found)):
        size += size_of(each.record)
        if count and size > SCREEN_BYTES_MAX:
            return found[-count:]
    return found


class _Reader(Consumer):
    """A consumer whose error about an unreadable batch names its place."""

    async def _unreadable(self, place: TopicPartition, code: int, fault: KafkaError | None) -> None:
        if fault is None:
            await super()._unreadable(place, code, fault)
        where = f"offset {self.positions[place]} of partition {place[0]}-{place[1]}"
        raise ClusterError(f"{where} cannot be read: {fault}", "begin at an offset behind it", code=code)


def size_of(record: Record) -> int:
    """Return the bytes of a record's key, value and headers."""
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.value or b"") + len(record.key or b"") + headers


def cursor(edges: Mapping[int, int] | None) -> str:
    """Return the text of a place for each partition, for links: "0.17-1.20"."""
    return "" if not edges else "-".join(f"{index}.{offset}" for index, offset in sorted(edges.items()))


def read_cursor(text: str) -> dict[int, int] | None:
    """Return the places of a cursor, or None if the text is no cursor."""
    if not _CURSOR.fullmatch(text):
        return None
    pairs = (part.split(".") for part in text.split("-"))
    return {int(index): int(offset) for index, offset in pairs}


def _consumer(
    cluster: ClusterClient,
    topic: str,
    starts: Mapping[int, int],
    stops: Mapping[int, int],
    fetch_bytes: int = PARTITION_BYTES_MAX,
) -> Consumer:
    left = [index for index, stop in stops.items() if stop > starts[index]]
    return _Reader(
        cluster,
        {(topic, index): starts[index] for index in left},
        {(topic, index): stops[index] for index in left},
        reset=topics.EARLIEST,
        partition_bytes_max=fetch_bytes,
        batch_bytes_max=BATCH_BYTES_MAX,
    )


def _passed(
    begin: Mapping[int, int], starts: Mapping[int, int], stops: Mapping[int, int], back: bool, ends: Mapping[int, int]
) -> int:
    """Return the number of offsets in the windows up to this one."""
    if back:
        return sum(ends[index] - starts[index] for index in starts)
    return sum(stops[index] - begin[index] for index in stops)
