"""The command `ottla replay`: it sends the requests of a recording to a cluster again, and compares the responses."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated

from ottla.cli.app import App, Parameter
from ottla.cli.application import CONNECTION, ConnectionOptions, Output, connect, run
from ottla.cli.commands.traffic import opened
from ottla.cli.errors import FAILED, OK, OUTPUT, USAGE, CommandFailed
from ottla.cli.output import note, print_json, print_rows
from ottla.server.workers import Workers
from ottla.traffic.entries import Entry, EntryReader
from ottla.traffic.replay_report import COLUMNS as COUNTED
from ottla.traffic.replay_report import ReplayReport
from ottla.traffic.replay_target import replay_file, replay_to

app = App("replay", "Send recorded traffic to a cluster again, and compare the responses.")

main = partial(run, app)

COLUMNS = ("api", "requests", *(outcome.value for outcome in COUNTED), "not_compared")
STANDARD_INPUT = "-"


@app.default
async def replay(
    file: str,
    /,
    *,
    speed: Annotated[
        float, Parameter(help="1: as fast as it was recorded; 10: ten times; 0: as fast as responses come.")
    ] = 1.0,
    every: Annotated[
        float, Parameter(help="Print a JSON object with the counts so far each so many seconds; 0: a table at the end.")
    ] = 0.0,
    output: Output = "table",
    connection: ConnectionOptions = CONNECTION,
) -> int:
    """Send the requests of FILE again, a recording of `ottla record`, or `-` for standard input. Exit code 1: responses differ."""
    if not 0 <= speed < 1e9:
        raise CommandFailed(f"--speed {speed:g} is none", "0, 1, or how many times as fast", USAGE)
    if not 0 <= every < 1e9:
        raise CommandFailed(f"--every {every:g} is none", "seconds between two lines, or 0", USAGE)
    report = ReplayReport(note)
    async with connect(connection, limited=False) as cluster, _printed(report, every):
        if file == STANDARD_INPUT:
            source = os.fdopen(os.dup(sys.stdin.fileno()), "rb")
            with source:
                reader = EntryReader(source.read, "standard input")
                await replay_to(cluster, _as_they_come(cluster.world.workers.apart("reading"), reader), report, 0)
        else:
            with opened(file) as reader:
                await replay_file(cluster, reader, report, speed)
    if reader.torn_at is not None:
        note(f"the recording ends within an entry, at byte {reader.torn_at}")
    if not every:
        print_rows(report.rows(), COLUMNS, output)
        note(report.summary())
    return FAILED if report.has_differences else OK


@asynccontextmanager
async def _printed(report: ReplayReport, every_s: float) -> AsyncIterator[None]:
    """Print the counts so far at these intervals, if they have changed, and at the end. 0: not at all."""
    if not every_s:
        yield
        return
    printed = -1

    def look() -> None:
        nonlocal printed
        if report.requests != printed:
            printed = report.requests
            print_json({"requests": printed, "summary": report.summary(), "rows": report.rows()})
            OUTPUT.flush()

    async def again() -> None:
        while True:
            look()
            await asyncio.sleep(every_s)

    printing = asyncio.create_task(again())
    try:
        yield
    finally:
        printing.cancel()
        look()


async def _as_they_come(workers: Workers, reader: EntryReader) -> AsyncIterator[Entry]:
    """Yield the entries of a pipe. A thread waits for them."""
    entries: Iterator[Entry] = iter(reader)
    while (entry := await workers.run(next, entries, None)) is not None:
        yield entry
