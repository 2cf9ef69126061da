"""The reports of a node to the process that started it: `ottla dev`, `ottla start --processes`, a test, or systemd.

A child has two pipes to its parent (ottla/processes/children.py):
ready     the node writes one line once it serves clients
alive     the node stops when the other end is closed: however its parent ends, no node outlives it
"""

from __future__ import annotations

import logging
import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

log = logging.getLogger("ottla.node")

#: "<fd of ready>,<fd of alive>"
PIPES_VARIABLE = "OTTLA_DEV_PIPES"
#: The address of systemd's socket, see sd_notify(3).
SYSTEMD_VARIABLE = "NOTIFY_SOCKET"
#: The file of the log, instead of standard output.
LOG_FILE_VARIABLE = "OTTLA_LOG_FILE"


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


def stop_with_parent(loop: asyncio.AbstractEventLoop, alive_fd: int, stop: asyncio.Event) -> None:
    """Set `stop` once the parent has closed its end of the pipe, or has ended; a node without a parent (-1) does nothing."""

    def on_readable() -> None:
        if not os.read(alive_fd, 1):
            loop.remove_reader(alive_fd)
            log.warning("The process that started this node is gone: stopping")
            stop.set()

    if alive_fd >= 0:
        loop.add_reader(alive_fd, on_readable)
