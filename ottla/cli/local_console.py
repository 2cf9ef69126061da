"""The console beside a local cluster: `ottla dev --console`. It is a process of its own, which ends with the cluster."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ottla.cli.errors import CommandFailed
from ottla.cli.local_nodes import HOST, Node, bootstrap

#: The console's port is this much above the first node's: 9490 beside 9092.
PORT_OFFSET = 398
LOOK, CHANGES = "look", "changes"
STOP_TIMEOUT_S = 5.0


@contextmanager
def running_console(nodes: Sequence[Node], port: int, mode: str, config: str | None) -> Iterator[str]:
    """Run a console of these nodes; its URL, once a browser can connect. `config`: a file of client properties.

    Raises:
        CommandFailed: its packages are not installed, or its port is in use. It has written why to standard error.
    """
    command = [sys.executable, "-m", "ottla", "console", "--bootstrap", bootstrap(nodes), "--port", str(port)]
    for node in nodes:
        command += ["--admin", f"{node.id}@{HOST}:{node.admin_port}"]
    if mode == CHANGES:
        command.append("--allow-changes")
    if config is not None:
        command += ["--config", config]
    # A session of its own: Ctrl-C at the terminal is for `ottla dev`, which stops it.
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        if not url:
            raise CommandFailed("the console has not started", "without --console the cluster runs as before")
        yield url
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
