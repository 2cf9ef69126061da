"""Nodes as child processes: `ottla start` with two pipes to this process (ottla/node/parent.py has the node's ends of them).

This module imports nothing of the server, so that only the node itself needs time for these imports.

A node may also be a fork of this process, which has imported the server once for all of its nodes: `ottla dev`, `ottla fork`,
and tests. The start of a node takes half a second of processor time, and nine tenths of it are imports. A process that forks
must not have a second thread (a tracer may have started one), nor an event loop, and libraries of macOS do not survive a fork.
In these cases nodes are new processes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple, NoReturn, Protocol

import ottla
from ottla.node.parent import LOG_FILE_VARIABLE, PIPES_VARIABLE, SYSTEMD_VARIABLE

#: Variables that a child does not get: its output goes to the parent, and the parent is the service.
OF_PARENT = (SYSTEMD_VARIABLE, LOG_FILE_VARIABLE)
#: The time between two checks of a process that is to end.
LOOK_S = 0.01
STANDARD = (0, 1, 2)


class NodeProcess(Protocol):
    """The interface to a node's process for its parent: a subprocess.Popen, or a process that another one has forked for it."""

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
    """The ends of a node's two pipes, first those that its parent keeps."""

    ready_fd: int
    alive_fd: int
    ready_write: int
    alive_read: int


@contextmanager
def pipes_of_node() -> Iterator[Pipes]:
    """Make the pipes of a node, which is started inside the block.

    Afterwards the parent keeps only its own ends, or none if the start raised OSError.
    """
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
    """Start `ottla start` with these arguments."""
    environment = {name: text for name, text in os.environ.items() if name not in OF_PARENT}
    # -P keeps the user's folders from shadowing our modules. They are then found in the folder of this very package.
    root = str(Path(ottla.__file__).parent.parent)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [root, environment.get("PYTHONPATH")]))
    with pipes_of_node() as pipes:
        environment[PIPES_VARIABLE] = f"{pipes.ready_write},{pipes.alive_read}"
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ottla.processes.start", *arguments],
            stdin=stdin,
            stdout=output,
            stderr=output,
            pass_fds=(pipes.ready_write, pipes.alive_read),
            env=environment,
            # Ctrl-C is sent to the whole foreground group, but the parent stops the nodes in order: so a node gets its own
            # group. It stays in the session: when the parent is killed, the group becomes an orphan, and the kernel ends the
            # stopped processes in it (SIGHUP, SIGCONT).
            process_group=0,
        )
    return ChildNode(process, pipes.ready_fd, pipes.alive_fd)


class ForkedChild:
    """A child of this process, with the methods of subprocess.Popen."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, or minus the signal that ended it; None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code.

        Raises:
            subprocess.TimeoutExpired: it runs on.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired("a node", timeout or 0)
            time.sleep(LOOK_S)
        return code

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        if self.poll() is None:  # it has not been waited for, so its number cannot belong to another process
            os.kill(self.pid, number)


def fork(
    imported: Callable[[], Callable[[list[str]], int]], arguments: Sequence[str], output: int | IO[bytes]
) -> ChildNode:
    """Start `ottla start` with these arguments in a fork of this process, or in a new process if this one has threads or does
    not run on Linux.

    Args:
        imported: it imports what a node needs, and returns the node's main function (ottla/processes/start.py).

    Raises:
        OSError: there is no room for another process.
    """
    # A lock that another thread holds would stay locked in the node.
    if sys.platform != "linux" or threading.active_count() > 1:
        return spawn(arguments, output)
    start = imported()
    sys.stdout.flush()
    sys.stderr.flush()
    with pipes_of_node() as pipes:
        pid = os.fork()
        if pid == 0:
            live(lambda: start(_with_files_of_its_own(arguments, output, pipes.ready_write, pipes.alive_read)))
    return ChildNode(ForkedChild(pid), pipes.ready_fd, pipes.alive_fd)


def live(run: Callable[[], int]) -> NoReturn:
    """Run the forked process until its end: it exits with the exit code of `run`, and never returns to its parent's code."""
    code = 1
    try:
        os.setpgid(0, 0)  # the comment in `spawn` has the reason
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        code = run()
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
        elif isinstance(ended.code, int):
            code = ended.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # with a full disk, too, it must not return to its parent's code
                stream.flush()
        os._exit(code)


def _with_files_of_its_own(arguments: Sequence[str], output: int | IO[bytes], ready: int, alive: int) -> list[str]:
    """Close all files of the parent in the node, above all the parent's ends of other nodes' pipes.

    Python's objects of them are never freed.
    """
    log = output if isinstance(output, int) else output.fileno()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, standard in zip((nothing, log, log), STANDARD, strict=True):
        os.dup2(descriptor, standard)
    low = len(STANDARD)
    for kept in sorted((ready, alive)):
        os.closerange(low, kept)
        low = kept + 1
    os.closerange(low, os.sysconf("SC_OPEN_MAX"))
    for name in OF_PARENT:
        os.environ.pop(name, None)
    os.environ[PIPES_VARIABLE] = f"{ready},{alive}"
    return list(arguments)
