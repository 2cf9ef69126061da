"""The command `ottla top`: it shows nodes, topics and groups again and again."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from functools import partial
from typing import Annotated

from ottla.cli.app import App, Parameter
from ottla.cli.application import ADMIN, CONNECTION, Admin, ConnectionOptions, Output, connect, run
from ottla.cli.cluster_look import look_at
from ottla.cli.errors import USAGE, CommandFailed
from ottla.cli.full_screen import FullScreen
from ottla.cli.output import note, print_json, print_rows, printable
from ottla.cli.top_screen import TopScreen
from ottla.cli.top_view import TopLook, without_admin
from ottla.cli.watching import ERASE_BELOW, EVERY_S_MIN, HOME, screen
from ottla.client.cluster import ClusterClient
from ottla.client.failures import Failure, counted

app = App("top", "Watch nodes, topics and groups.")

#: The lines and columns of tables if the output is no terminal.
SIZE_MAX = 1_000_000
#: The heading, and the line below it.
HEAD_LINES = 3

main = partial(run, app)


@app.default
async def top(
    *,
    once: Annotated[bool, Parameter(help="Look twice, show that, and end: for scripts.")] = False,
    every: Annotated[float, Parameter(help="Seconds between two looks.")] = 2.0,
    admin: Admin = ADMIN,
    output: Output = "table",
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Show rates, times of requests, loop and memory of nodes, rates of topics, lag of groups. On a terminal h shows the keys.

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
        if output == "table" and sys.stdout.isatty():
            with FullScreen().shown() as terminal:
                await _Live(cluster, admin, before, every, terminal).run()
        else:
            await _print_on(cluster, admin, before, every, output)


async def _looked(cluster: ClusterClient, admin: Admin) -> TopLook | str:
    """Return a look at the cluster, or why there is none. A cluster that cannot be reached is shown as such, and tried again."""
    try:
        async with cluster.limit():
            return await look_at(cluster, admin)
    except Failure as fault:
        return fault.cause
    except TimeoutError:
        return f"no answer while {cluster.doing}"


async def _print_on(cluster: ClusterClient, admin: Admin, before: TopLook, every: float, output: str) -> None:
    """Print one look after another until Ctrl-C."""
    while True:
        await asyncio.sleep(every)
        now = await _looked(cluster, admin)
        if isinstance(now, str):
            note(now)
            continue
        _show(before, now, output)
        before = now


def _show(before: TopLook, now: TopLook, output: str) -> None:
    rows = now.rows(before)
    if output == "json":
        print_json(rows)
    elif output == "yaml":
        print_rows([rows], (), output)
    else:
        print("\n".join(TopScreen().lines(rows, SIZE_MAX, SIZE_MAX)))
        if missing := list(without_admin(now.nodes)):
            note(f"no admin listener answers for node {', '.join(map(str, missing))}: some columns are not known")
    sys.stdout.flush()


class _Live:
    """The looks on a terminal, and the keys that it takes."""

    def __init__(
        self, cluster: ClusterClient, admin: Admin, first: TopLook, every: float, terminal: FullScreen
    ) -> None:
        self._cluster, self._admin, self._every, self._terminal = cluster, admin, every, terminal
        self._screen = TopScreen()
        self._now, self._is_first = first, True
        self._rows = first.rows(first)
        self._fault: str | None = None

    async def run(self) -> None:
        """Look at the cluster and handle keys, until the key for the end."""
        async with asyncio.TaskGroup() as tasks:
            looking = tasks.create_task(self._look_on())
            self._draw()
            while self._screen.press(await self._terminal.keys.get()):
                self._draw()
            looking.cancel()

    async def _look_on(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            if self._screen.is_paused:
                continue
            found = await _looked(self._cluster, self._admin)
            if isinstance(found, str):
                self._fault = found
            else:
                self._rows = found.rows(self._now)
                self._fault, self._now, self._is_first = None, found, False
            self._draw()

    def _draw(self) -> None:
        size = shutil.get_terminal_size()
        tables = self._screen.lines(self._rows, size.lines - 1 - HEAD_LINES, size.columns)
        lines = [self._head(), self._screen.status(size.columns, self._rows), "", *tables]
        sys.stdout.write(HOME + screen(lines, size.lines - 1, size.columns) + ERASE_BELOW)
        sys.stdout.flush()

    def _head(self) -> str:
        clock = time.strftime("%H:%M:%S")
        if self._fault is not None:
            return f"{clock}  {printable(self._fault)}"
        now = self._now
        missing = list(without_admin(now.nodes))
        dashes = f"; no admin listener of {', '.join(map(str, missing))}" if missing else ""
        waits = "; rates after the next look" if self._is_first else ""
        return f"{clock}  {counted(len(now.nodes), 'node')}, {counted(len(now.topics), 'topic')}, {counted(len(now.groups), 'group')}{dashes}{waits}"
