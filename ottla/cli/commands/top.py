"""The command `ottla top`: nodes, topics and groups, again and again."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated

from cyclopts import App, Parameter

from ottla.cli.application import ADMIN, CONNECTION, Admin, Connection, Output, connect, run
from ottla.cli.client.cluster import ClusterClient
from ottla.cli.cluster_look import look_at
from ottla.cli.errors import USAGE, CommandFailed
from ottla.cli.output import note, print_json, print_rows, printable
from ottla.cli.top_view import Look, screen_lines, without_admin
from ottla.cli.watching import ERASE_BELOW, EVERY_S_MIN, HOME, screen

app = App(name="top", version_flags=[], help="Watch nodes, topics and groups.")

#: The screen beside the one that is there, without a cursor: what was in the terminal comes back at the end.
ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
#: Lines of a table that is not on a screen.
LINES_MAX = 1_000_000

main = partial(run, app)


@app.default
async def top(
    *,
    once: Annotated[bool, Parameter(negative="", help="Look twice, show that, and end: for scripts.")] = False,
    every: Annotated[float, Parameter(help="Seconds between two looks.")] = 2.0,
    admin: Admin = ADMIN,
    output: Output = "table",
    connection: Connection = CONNECTION,
) -> None:
    """Show rates, times of requests, loop and memory of nodes, rates of topics, lag of groups. Ctrl-C ends it.

    What only the admin listeners of Ottla's brokers know is a dash without --admin-port, and with others, such as Apache Kafka's.
    """
    if not every >= EVERY_S_MIN:
        raise CommandFailed(f"--every {every:g} is below {EVERY_S_MIN:g}", None, USAGE)
    async with connect(connection, limited=False) as cluster:
        async with cluster.limit():
            before = await look_at(cluster, admin)
        if once:
            await asyncio.sleep(every)
            async with cluster.limit():
                _show(before, await look_at(cluster, admin), output)
            return
        with _screen() if output == "table" and sys.stdout.isatty() else _nothing():
            await _go_on(cluster, admin, before, every, output)


async def _go_on(cluster: ClusterClient, admin: Admin, before: Look, every: float, output: str) -> None:
    """Look until Ctrl-C; a cluster that is away is shown as such, and looked for again."""
    while True:
        await asyncio.sleep(every)
        try:
            async with cluster.limit():
                now = await look_at(cluster, admin)
        except (CommandFailed, TimeoutError) as fault:
            cause = fault.cause if isinstance(fault, CommandFailed) else f"no answer while {cluster.doing}"
            _show_error(cause)
            continue
        _show(before, now, output)
        before = now


def _show(before: Look, now: Look, output: str) -> None:
    rows = now.rows(before)
    if output == "json":
        print_json(rows)
    elif output == "yaml":
        print_rows([rows], (), output)
    elif sys.stdout.isatty():
        size = shutil.get_terminal_size()
        lines = [_head(now), "", *screen_lines(rows, size.lines - 3)]
        sys.stdout.write(HOME + screen(lines, size.lines - 1, size.columns) + ERASE_BELOW)
    else:
        print("\n".join(screen_lines(rows, LINES_MAX)))
        if missing := list(without_admin(now.nodes)):
            note(f"no admin listener answers for node {', '.join(map(str, missing))}: some columns are not known")
    sys.stdout.flush()


def _show_error(cause: str) -> None:
    if sys.stdout.isatty():
        columns = shutil.get_terminal_size().columns
        sys.stdout.write(HOME + screen([f"{time.strftime('%H:%M:%S')}  {printable(cause)}"], 2, columns))
        sys.stdout.flush()
    else:
        note(cause)


def _head(now: Look) -> str:
    missing = list(without_admin(now.nodes))
    dashes = f"; no admin listener of {', '.join(map(str, missing))}" if missing else ""
    return f"{time.strftime('%H:%M:%S')}  {len(now.nodes)} nodes, {len(now.topics)} topics, {len(now.groups)} groups{dashes}"


@contextmanager
def _screen() -> Iterator[None]:
    sys.stdout.write(ENTER)
    try:
        yield
    finally:
        sys.stdout.write(LEAVE)
        sys.stdout.flush()


@contextmanager
def _nothing() -> Iterator[None]:
    yield
