"""The message browser: a screen of records, scans and live tails as streams, and downloads."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from ottla.client.failures import Failure, plural
from ottla.console import reading
from ottla.console.matching import CONTAINS, KEY_WAYS, VALUE_WAYS, Found, Query
from ottla.console.panels import Shown
from ottla.console.problems import remedy_of
from ottla.console.reading import ReadProgress, RecordScreen
from ottla.console.record_view import CSV_COLUMNS, FORMS, RecordView, csv_line, json_line, view_of
from ottla.console.site import Site, index_in, number

log = logging.getLogger(__name__)

#: The time between two messages about the progress of a scan.
STATE_S = 0.4
#: A download has this many records, unless its link asks for fewer.
DOWNLOAD_MAX = 1_000_000
DOWNLOAD_DEFAULT = 10_000
#: The bytes of one chunk of a download.
PIECE_BYTES = 64 * 1024
#: One turn of the event loop renders records for this long.
VIEWED_S = 0.01
#: A screen may take longer than a panel: it reads from the leaders of all partitions.
SCREEN_LIMIT_S = 8.0
#: A live view ends after this time, with a sentence about it. A scan and a download have the same limit, also if a browser
#: reads slowly.
STREAM_S_MAX = 3_600.0
#: A browser has this long to read the chunks before the next one (at most 64 KB wait for it): until then it keeps one of few
#: scans.
PIECE_S_MAX = 60.0


def query_of(request: Request) -> Query:
    """Return the query of a link or a form. Fields that cannot be understood are ignored.

    Raises:
        Failure: there is no such partition.
    """
    fields = request.query_params
    start = fields.get("from", "newest")
    topic = request.path_params["name"]
    return Query(
        topic,
        index_in(fields, "partition", f"partition of {topic} with the number"),
        start if start in reading.STARTS else "newest",
        fields.get("at", "").strip(),
        fields.get("until", "").strip(),
        number(request, "limit", 50, 1, reading.LIMIT_MAX),
        fields.get("key", ""),
        way if (way := fields.get("key_by", "")) in KEY_WAYS else CONTAINS,
        fields.get("value", ""),
        way if (way := fields.get("value_by", "")) in VALUE_WAYS else CONTAINS,
        fields.get("header", "").strip(),
        fields.get("path", "").strip(),
        reading.read_cursor(fields.get("after", "")),
        reading.read_cursor(fields.get("before", "")),
    )


def form_of(request: Request) -> str:
    form = request.query_params.get("as", "auto")
    return form if form in FORMS else "auto"


async def records(request: Request) -> Response:
    site: Site = request.app.state.site
    query, form = query_of(request), form_of(request)
    snapshot = await site.snapshot_with(query.topic, query.partition)
    partitions = len(snapshot.topics[query.topic]) if snapshot else 0
    if query.is_filtered or query.start == "live":
        return _page(request, query, form, partitions)

    async def load() -> RecordScreen:
        async with site.access.scan() as cluster:
            return await reading.screen(cluster, query)

    began = time.monotonic()
    # The panel's key is the query itself, not the text of its link.
    key = ("records", replace(query, after=_places(query.after), before=_places(query.before)))
    async with site.panels.lend(key, load, SCREEN_LIMIT_S, reading.SCREEN_BYTES_MAX) as shown:
        took_s = time.monotonic() - began
        views = await viewed(site, query.topic, shown.value.found if shown.value else (), form)
        return _page(request, query, form, partitions, shown, views, took_s)


def _page(
    request: Request,
    query: Query,
    form: str,
    partitions: int,
    shown: Shown[RecordScreen] | None = None,
    views: Sequence[RecordView] = (),
    took_s: float = 0.0,
) -> Response:
    """Return the page with a screen of records. If they come as a stream, the page has none yet."""
    site: Site = request.app.state.site
    return site.render(
        request,
        "records.html",
        name=query.topic,
        tab="records",
        q=query,
        form=form,
        forms=FORMS,
        starts=reading.STARTS,
        ways={"key": KEY_WAYS, "value": VALUE_WAYS},
        shown=shown,
        views=views,
        streamed=shown is None,
        took_s=took_s,
        partitions=partitions,
        cursor=reading.cursor,
        fields={
            name: value for name, value in request.query_params.items() if name not in ("after", "before", "format")
        },
    )


def _places(edges: Mapping[int, int] | None) -> Any:
    """Return places in a form that can be hashed for a key."""
    return None if edges is None else tuple(sorted(edges.items()))


async def viewed(site: Site, topic: str, found: Iterable[Found], form: str) -> list[RecordView]:
    """Return records as the page shows them. With a schema registry, values are decoded."""
    found = list(found)
    decoded = {}
    if form == "auto" and site.decoder is not None:
        decoded = await site.decoder.decode(each.record for each in found)
    views = []
    turn_s = time.monotonic()
    for each in found:
        views.append(view_of(topic, each.partition, each.record, form, decoded))
        if time.monotonic() - turn_s > VIEWED_S:  # decoding a value may take milliseconds, and a screen has 500
            await asyncio.sleep(0)
            turn_s = time.monotonic()
    return views


async def stream(request: Request) -> RecordStream:
    """Respond with server-sent events: `rows` with the HTML of records, `state` with a sentence, and `end`."""
    site: Site = request.app.state.site
    query, form = query_of(request), form_of(request)
    await site.snapshot_with(query.topic, query.partition)
    events = _tail(request, query, form) if query.start == "live" else _scan(request, query, form)
    return RecordStream(_until_left(request, events), "text/event-stream")


class RecordStream:
    """A streamed response that ends after a time, whatever the browser does. Then its scan is free for others."""

    def __init__(self, pieces: AsyncGenerator[str, None], kind: str, headers: Mapping[str, str] | None = None) -> None:
        self._pieces = pieces
        self._response = StreamingResponse(pieces, media_type=kind, headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def timely(message: Message) -> None:
            async with asyncio.timeout(PIECE_S_MAX):
                await send(message)

        try:
            async with asyncio.timeout(STREAM_S_MAX):
                await self._response(scope, receive, timely)
        except TimeoutError:
            log.info("a stream has ended: its browser has read too little, or it has taken %g s", STREAM_S_MAX)
        finally:
            await self._pieces.aclose()


async def _scan(request: Request, query: Query, form: str) -> AsyncGenerator[str, None]:
    site: Site = request.app.state.site
    began = time.monotonic()
    progress, matched = ReadProgress(0, 0, 0), 0
    async with site.access.scan() as cluster:
        async for each in reading.scan(cluster, query, site.decode):
            if isinstance(each, ReadProgress):
                progress = each
                yield _event("state", _progress(progress, time.monotonic() - began))
            else:
                matched += len(each)
                yield _event("rows", await _rows(request, query, each, form))
    seconds = time.monotonic() - began
    if matched >= reading.LIMIT_MAX:
        yield _event("end", f"{matched} records match, more are not looked for: narrow the filter, or download them.")
    else:
        found = f"Done: {matched} of {progress.total:,} {plural(progress.total, 'record')} match, looked at in {seconds:.1f} s."
        yield _event("end", found + _not_seen(progress))


async def _tail(request: Request, query: Query, form: str) -> AsyncGenerator[str, None]:
    site: Site = request.app.state.site
    seen = left_out = 0
    said = ""
    ends_s = time.monotonic() + 0.9 * STREAM_S_MAX
    async with site.access.scan() as cluster:
        async for each in reading.tail(cluster, query, site.decode):
            if isinstance(each, int):
                left_out += each
            elif isinstance(each, str):
                said = f" {each[0].upper()}{each[1:]}."
            else:
                seen += len(each)
                if each:
                    yield _event("rows", await _rows(request, query, each, form))
            note = f", {left_out:,} too quick to show" if left_out else ""
            yield _event("state", f"Live: {seen:,} {plural(seen, 'record')}{note}.{said}")
            if time.monotonic() > ends_s:
                yield _event(
                    "end",
                    f"The live view has ended after {seen:,} {plural(seen, 'record')}: load the page again to go on.",
                )
                return


async def _until_left(request: Request, events: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
    """Pass events on until the browser has disconnected.

    A failure becomes the last event. States are sent at most every STATE_S.
    """
    said_s = 0.0
    try:
        async for event in events:
            if event.startswith("event: state"):
                if time.monotonic() - said_s < STATE_S:
                    continue
                said_s = time.monotonic()
                if await request.is_disconnected():
                    return
            yield event
    except Failure as fault:
        yield _event("end", fault.cause + (f" ({remedy})" if (remedy := remedy_of(fault)) else ""))
    except TimeoutError:
        yield _event("end", "The cluster has not answered for too long.")
    finally:
        await events.aclose()


async def _rows(request: Request, query: Query, found: list[Found], form: str) -> str:
    site: Site = request.app.state.site
    return site.rows(request, "record_rows.html", views=await viewed(site, query.topic, found, form))


def _progress(progress: ReadProgress, seconds: float) -> str:
    part = progress.passed * 100 // max(1, progress.total)
    rate = progress.passed / max(0.001, seconds)
    found = f"{part} %: {progress.matched:,} of {progress.passed:,} {plural(progress.passed, 'record')} match, {rate:,.0f} records/s."
    return found + _not_seen(progress)


def _not_seen(progress: ReadProgress) -> str:
    if not progress.not_seen:
        return ""
    return f" {progress.not_seen:,} were not looked into: they are too large, or their schema cannot be used."


def _event(name: str, text: str) -> str:
    lines = "".join(f"data: {line}\n" for line in text.replace("\r", "").split("\n"))
    return f"event: {name}\n{lines}\n"


async def download(request: Request) -> RecordStream:
    """Return all records that match a query, as JSON lines or CSV. `ottla produce -i json` can read the JSON lines."""
    site: Site = request.app.state.site
    query = query_of(request)
    await site.snapshot_with(query.topic, query.partition)
    as_csv = request.query_params.get("format") == "csv"
    limit = number(request, "max", DOWNLOAD_DEFAULT, 1, DOWNLOAD_MAX)
    kind, ending = ("text/csv; charset=utf-8", "csv") if as_csv else ("application/x-ndjson", "jsonl")
    safe = "".join(char if char.isalnum() or char in "._-" else "_" for char in query.topic)
    headers = {"content-disposition": f'attachment; filename="{safe}.{ending}"'}
    lines = _lines(site, query, limit, as_csv)
    try:
        first = await anext(lines)  # a failure at the beginning gets an HTTP status
    except StopAsyncIteration:
        first = ""
    return RecordStream(_pieces(first, lines), kind, headers)


async def _lines(site: Site, query: Query, limit: int, as_csv: bool) -> AsyncGenerator[str, None]:
    line = csv_line if as_csv else json_line
    async with site.access.scan() as cluster:
        if as_csv:
            yield ",".join(CSV_COLUMNS) + "\r\n"
        async for each in reading.export(cluster, query, limit, site.decode):
            yield line(query.topic, each.partition, each.record)


async def _pieces(first: str, lines: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
    piece = [first]
    size = 0
    async with aclosing(lines):
        async for line in lines:
            piece.append(line)
            size += len(line)
            if size >= PIECE_BYTES:
                yield "".join(piece)
                piece, size = [], 0
                await asyncio.sleep(0)
        yield "".join(piece)


ROUTES = [
    Route("/topics/{name}/records", records),
    Route("/topics/{name}/stream", stream),
    Route("/topics/{name}/download", download),
]
