"""The nursery's process, which forks nodes: `python -m ottla.testing.inside.nursery FD`, started by `ottla.testing.nursery`.

It has imported the server once for all of them.

A request comes with five descriptors: the node's output, its two pipes (ottla/processes/children.py), its control socket, and a pipe to which this
process writes the node's exit code. The response is the node's process id, or the negative error number of a fork that has failed. When the
socket is closed the nursery ends; its nodes end by their own pipes.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from ottla.node.parent import PIPES_VARIABLE
from ottla.processes.children import live
from ottla.testing.inside import control
from ottla.testing.inside.faults import decoded

REQUEST_BYTES_MAX = 1 << 20
DESCRIPTORS = 5


class Birth(NamedTuple):
    """A request for a node."""

    arguments: list[str]
    environment: dict[str, str]
    directory: str
    faults: str


def main(fd: int) -> None:
    with suppress(ImportError):  # ottla/node/process.py uses it
        importlib.import_module("uvloop")
    parent = socket.socket(fileno=fd)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the test's process, which then closes the socket
    gc.collect()
    gc.freeze()  # garbage collections of nodes must not write to the pages that all share
    exits: dict[int, int] = {}
    poll = (
        select.poll()
    )  # the number of the socket comes from a test's process, which may have thousands, and select ends at 1,024
    for each in (parent.fileno(), woken):
        poll.register(each, select.POLLIN)
    while True:
        ready = [each for each, _ in poll.poll()]
        if woken in ready:
            os.read(woken, 4096)
            _bury(exits)
        if parent.fileno() in ready:
            head, descriptors, _, _ = socket.recv_fds(parent, 4, DESCRIPTORS)
            if not head:
                return
            birth = Birth(*json.loads(_exactly(parent, int.from_bytes(head, "big"))))
            try:
                pid = os.fork()
            except OSError as fault:  # no memory, or too many processes: the next node may succeed
                for each in descriptors:
                    os.close(each)
                parent.sendall((-(fault.errno or 0)).to_bytes(4, "big", signed=True))
                continue
            if pid == 0:
                for each in (parent.fileno(), woken, wake, *exits.values(), descriptors[-1]):
                    os.close(each)
                live(partial(_be_a_node, birth, descriptors))
            for each in descriptors[:-1]:
                os.close(each)
            exits[pid] = descriptors[-1]
            parent.sendall(pid.to_bytes(4, "big", signed=True))


def _exactly(stream: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = stream.recv(size - len(data))
        if not piece:
            raise SystemExit
        data += piece
    return data


def _bury(exits: dict[int, int]) -> None:
    """Report the exit codes of nodes that have ended."""
    while exits:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        fd = exits.pop(pid)
        with suppress(BrokenPipeError):  # its parent no longer waits for it
            os.write(fd, b"%d" % os.waitstatus_to_exitcode(status))
        os.close(fd)


def _be_a_node(birth: Birth, descriptors: list[int]) -> int:
    """Run as a node in the forked process. Return the exit code."""
    signal.set_wakeup_fd(-1)
    output, ready, alive, control_fd, _ = descriptors
    for standard in (1, 2):
        os.dup2(output, standard)
    os.close(output)
    os.chdir(birth.directory)
    os.environ.clear()
    os.environ.update(birth.environment)
    os.environ[PIPES_VARIABLE] = f"{ready},{alive}"
    return control.run(birth.arguments, control_fd, decoded(birth.faults.encode()))


if __name__ == "__main__":
    main(int(sys.argv[1]))
