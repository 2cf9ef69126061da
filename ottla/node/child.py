"""A node as a child process: `ottla start` with two pipes to the process that started it (`ottla dev`, `ottla start --processes`).

ready     the node writes one line once it serves clients
alive     the node stops when the other end is closed: however its parent ends, no node outlives it

This module imports nothing of the server, so that the node's own start is all the start there is.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple, Protocol

import ottla

#: "<fd of ready>,<fd of alive>"
PIPES_VARIABLE = "OTTLA_DEV_PIPES"
#: The address of systemd's socket, see sd_notify(3).
SYSTEMD_VARIABLE = "NOTIFY_SOCKET"
#: The file of the log, instead of standard output.
LOG_FILE_VARIABLE = "OTTLA_LOG_FILE"
#: A child has neither: its output is the parent's, and the parent is the service.
OF_PARENT = (SYSTEMD_VARIABLE, LOG_FILE_VARIABLE)


class NodeProcess(Protocol):
    """What a parent does with a node's process: of subprocess.Popen, or one that another process has forked for it."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


class ChildNode(NamedTuple):
    """A started node. The parent reads `ready_fd`, and keeps `alive_fd` open: the node stops when it is closed."""

    process: NodeProcess
    ready_fd: int
    alive_fd: int


class Pipes(NamedTuple):
    """The ends of a node's two pipes: first those that its parent keeps."""

    ready_fd: int
    alive_fd: int
    ready_write: int
    alive_read: int


@contextmanager
def pipes_of_node() -> Iterator[Pipes]:
    """Make the pipes of a node that is started within. Afterwards the parent has its own ends, or none if that raised OSError."""
    ready_fd, ready_write = os.pipe()
    alive_read, alive_fd = os.pipe()
    try:
        yield Pipes(ready_fd, alive_fd, ready_write, alive_read)
    except OSError:
        os.close(ready_fd)
        os.close(alive_fd)
        raise
    finally:
        os.close(ready_write)
        os.close(alive_read)


def spawn(arguments: Sequence[str], output: int | IO[bytes], stdin: int | IO[bytes] = subprocess.DEVNULL) -> ChildNode:
    """Starts `ottla start` with these arguments."""
    environment = {name: text for name, text in os.environ.items() if name not in OF_PARENT}
    # -P keeps the user's own folders from shadowing ours; ours are then found where this very package was.
    root = str(Path(ottla.__file__).parent.parent)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [root, environment.get("PYTHONPATH")]))
    with pipes_of_node() as pipes:
        environment[PIPES_VARIABLE] = f"{pipes.ready_write},{pipes.alive_read}"
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ottla.cli.commands.start", *arguments],
            stdin=stdin,
            stdout=output,
            stderr=output,
            pass_fds=(pipes.ready_write, pipes.alive_read),
            env=environment,
            # Ctrl-C is sent to the whole foreground group: the nodes are stopped by us, in order. In our session all the same:
            # when we are killed their group becomes an orphan, and the kernel ends (SIGHUP, SIGCONT) those in it that sleep.
            process_group=0,
        )
    return ChildNode(process, pipes.ready_fd, pipes.alive_fd)


def report_ready(ready_fd: int) -> None:
    """Report to the process that started this node, or to systemd (Type=notify), that clients are served."""
    if ready_fd >= 0:
        os.write(ready_fd, b"ready\n")
    address = os.environ.pop(SYSTEMD_VARIABLE, "")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
            # An address that begins with @ is one of Linux's abstract ones, which begin with a zero byte.
            notified.sendto(b"READY=1", address.replace("@", "\0", 1) if address.startswith("@") else address)


def inherited_pipes() -> tuple[int, int]:
    """Return the file descriptors of ready and alive; (-1, -1) for a node that was not started this way."""
    text = os.environ.pop(PIPES_VARIABLE, "")
    ready, _, alive = text.partition(",")
    return (int(ready), int(alive)) if alive else (-1, -1)
