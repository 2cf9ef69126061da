"""The command `ottla shadow`: a proxy that responds from one cluster, and sends the same requests to a second one."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated, BinaryIO, NamedTuple, cast

from ottla.cli.app import App, Parameter
from ottla.cli.application import Output, run
from ottla.cli.commands.record import SECURITY, Listen, ProxySecurity, To, proxied, until_interrupted
from ottla.cli.commands.replay import COLUMNS
from ottla.cli.errors import FAILED, OK, USAGE, CommandFailed
from ottla.cli.output import note, print_rows
from ottla.cli.shared_options import read_address
from ottla.server.address import Address
from ottla.server.world import RealWorld
from ottla.traffic.masking import Masking
from ottla.traffic.recorder import Recorder, Spool

app = App("shadow", "Answer clients from one cluster, ask a second one too, and report the differences.")

main = partial(run, app)

#: The shadow's process has the lowest priority, so that it takes no time from the proxy on a busy machine. There it may get next to
#: none itself, so the table is printed here, from the counts that it sends this often.
NICENESS = 19
COUNTS_EVERY_S = 0.5
#: At the end the shadow may take this long for what it is behind.
CATCH_UP_S = 4.0


class ShadowCounts(NamedTuple):
    """The responses that the shadow has compared so far."""

    requests: int = 0
    summary: str = ""
    rows: Sequence[Mapping[str, object]] = ()


def replay_words(second: Address, config: str | None) -> list[str]:
    """Return the command of the shadow's process."""
    words = [sys.executable, "-m", "ottla", "replay", "-", "-b", str(second), "--every", str(COUNTS_EVERY_S)]
    return words if config is None else [*words, "--config", config]


class ShadowProcess:
    """The process that replays to the second cluster, in its own session, so that Ctrl-C at the terminal reaches only the proxy."""

    def __init__(self, words: list[str]) -> None:
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True
        )
        os.setpriority(os.PRIO_PROCESS, self._process.pid, NICENESS)
        self.requests = cast(BinaryIO, self._process.stdin)
        self.counts = ShadowCounts()
        self.is_dropped = False
        self._is_over = False

    def drop(self, failure: OSError) -> None:
        """Go on without it, because it takes no more requests."""
        if not self._is_over:
            self.is_dropped = True
            why = "its process has ended" if isinstance(failure, BrokenPipeError) else failure.strerror
            note(f"the shadow is dropped, clients go on: {why}")
            with suppress(OSError):
                self._process.send_signal(signal.SIGTERM)

    def read_counts(self) -> int:
        """Read its counts until it has ended, on a thread. Return its exit code."""
        for line in cast(BinaryIO, self._process.stdout):
            self.counts = ShadowCounts(**json.loads(line))
        return self._process.wait()

    def end(self) -> None:
        self._is_over = True
        if self._process.poll() is None:
            self._process.kill()


@app.default
async def shadow(
    *,
    listen: Listen,
    to: To,
    shadow: Annotated[str, Parameter(help="HOST:PORT of a broker of the second cluster.")],
    shadow_config: Annotated[
        str | None, Parameter(help="Client properties for the second cluster: the shadow has a login of its own.")
    ] = None,
    catch_up: Annotated[
        float, Parameter(help="Seconds that the shadow may take at the end for what it is behind.")
    ] = CATCH_UP_S,
    output: Output = "table",
    security: ProxySecurity = SECURITY,
) -> int:
    """Answer clients from --to until it is interrupted, and report where --shadow answers otherwise. Clients never wait for the shadow."""
    if not 0 <= catch_up < 1e9:
        raise CommandFailed(f"--catch-up {catch_up:g} is none", "seconds, at least 0", USAGE)
    words = replay_words(read_address("--shadow", shadow), shadow_config)
    real = RealWorld(asyncio.get_running_loop())
    process = ShadowProcess(words)
    try:
        spool = Spool(real.world, process.requests, process.drop)
        recorder = Recorder(real.world.clock, spool, Masking(), is_whole=True)
        reading = real.world.spawn(real.world.workers.apart("shadow").run(process.read_counts), "the shadow's counts")
        async with proxied(real.world, listen, to, recorder, security):
            await until_interrupted()
        code, late = FAILED, ""
        try:
            async with asyncio.timeout(catch_up):
                await spool.close()
                process.requests.close()
                code = await reading
        except TimeoutError:
            late = f" within {catch_up:g} s after the end"
        process.end()
        counts = process.counts
        if counts.rows or code == OK:
            print_rows(counts.rows, COLUMNS, output)
            note(counts.summary)
        if undone := recorder.responses - counts.requests:
            note(f"{undone} responses were not compared{late}")
        return OK if code == OK and not (process.is_dropped or undone) else FAILED
    finally:
        process.end()
        await real.tasks.close()
        await real.close()
