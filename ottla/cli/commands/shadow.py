"""The command `ottla shadow`: a proxy that responds from one cluster, and sends the same requests to a second one."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import suppress
from functools import partial
from typing import Annotated, BinaryIO, cast

from ottla.cli.app import App, Parameter
from ottla.cli.application import Output, run
from ottla.cli.commands.record import SECURITY, Listen, ProxySecurity, To, proxied, until_interrupted
from ottla.cli.errors import FAILED, OK
from ottla.cli.output import note
from ottla.cli.shared_options import read_address
from ottla.server.world import RealWorld
from ottla.traffic.masking import Masking
from ottla.traffic.recorder import Recorder, Spool

app = App("shadow", "Answer clients from one cluster, ask a second one too, and report the differences.")

main = partial(run, app)

#: The shadow's process has the lowest priority, so that it takes no time from the proxy on a busy machine.
NICENESS = 19
#: The shadow may take this long for its last responses and the table.
END_S_MAX = 90.0


@app.default
async def shadow(
    *,
    listen: Listen,
    to: To,
    shadow: Annotated[str, Parameter(help="HOST:PORT of a broker of the second cluster.")],
    shadow_config: Annotated[
        str | None, Parameter(help="Client properties for the second cluster: the shadow has a login of its own.")
    ] = None,
    output: Output = "table",
    security: ProxySecurity = SECURITY,
) -> int:
    """Answer clients from --to until it is interrupted, and report where --shadow answers otherwise. Clients never wait for the shadow."""
    second = str(read_address("--shadow", shadow))
    words = [sys.executable, "-m", "ottla", "replay", "-", "-b", second, "-o", output]
    words += [] if shadow_config is None else ["--config", shadow_config]
    real = RealWorld(asyncio.get_running_loop())
    process: subprocess.Popen[bytes] | None = None
    is_dropped = False
    try:
        process = _started(words)
        requests = cast(BinaryIO, process.stdin)

        def drop(failure: OSError) -> None:
            nonlocal is_dropped
            is_dropped = True
            why = "its process has ended" if isinstance(failure, BrokenPipeError) else failure.strerror
            note(f"the shadow is dropped, clients go on: {why}")
            assert process is not None
            with suppress(OSError):
                process.send_signal(signal.SIGTERM)

        spool = Spool(real.world, requests, drop)
        recorder = Recorder(real.world.clock, spool, Masking(), is_whole=True)
        async with proxied(real.world, listen, to, recorder, security):
            await until_interrupted()
        if is_dropped:
            return FAILED
        await spool.close()
        with suppress(OSError):
            requests.close()
        try:
            code = await real.world.workers.apart("shadow").run(process.wait, END_S_MAX)
        except subprocess.TimeoutExpired:
            note(f"the shadow is still behind after {END_S_MAX:g} s, and is ended without its table")
            return FAILED
        return OK if code == 0 else FAILED
    finally:
        if process is not None and process.poll() is None:
            process.kill()
        await real.tasks.close()
        await real.close()


def _started(words: list[str]) -> subprocess.Popen[bytes]:
    """Start the shadow's process in its own session, so that Ctrl-C at the terminal reaches only the proxy, which then lets the
    shadow finish.
    """
    process = subprocess.Popen(words, stdin=subprocess.PIPE, bufsize=0, start_new_session=True)
    os.setpriority(os.PRIO_PROCESS, process.pid, NICENESS)
    return process
