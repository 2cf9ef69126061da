"""A node as a fork of this process, which has imported the server once for all of its nodes: `ottla dev`, `ottla fork`, and tests.

A start of a node is half a second of processor, and nine tenths of it are imports. What forks has no second thread (a tracer may have
begun one), nor an event loop. Libraries of macOS do not survive a fork. In both cases nodes are processes of their own (ottla/node/child.py).
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO, NoReturn

from ottla.node.child import OF_PARENT, PIPES_VARIABLE, ChildNode, pipes_of_node, spawn

#: Between two looks at a process that is to end.
LOOK_S = 0.01
STANDARD = (0, 1, 2)


class ForkedChild:
    """A child of this process, with the verbs of subprocess.Popen."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, minus the signal that ended it; None while it runs."""
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
        if self.poll() is None:  # it is not waited for yet, so that its number is not another's
            os.kill(self.pid, number)


def fork(arguments: Sequence[str], output: int | IO[bytes]) -> ChildNode:
    """Start `ottla start` with these arguments in a fork of this process; in one of its own if this has threads, or is not on Linux.

    Raises:
        OSError: there is no room for another process.
    """
    # What another thread has locked would stay locked in the node.
    if sys.platform != "linux" or threading.active_count() > 1:
        return spawn(arguments, output)
    start = _imported()
    sys.stdout.flush()
    sys.stderr.flush()
    with pipes_of_node() as pipes:
        pid = os.fork()
        if pid == 0:
            live(lambda: start(_with_files_of_its_own(arguments, output, pipes.ready_write, pipes.alive_read)))
    return ChildNode(ForkedChild(pid), pipes.ready_fd, pipes.alive_fd)


def live(run: Callable[[], int]) -> NoReturn:
    """The whole life of a process that was just forked: it ends with the exit code of `run`, and never returns to its parent's code."""
    code = 1
    try:
        os.setpgid(0, 0)  # see ottla/node/child.py
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
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _imported() -> Callable[[list[str]], int]:
    """Import all that a node needs, and keep it out of collections: those would write to the pages that all nodes share."""
    was_enabled = gc.isenabled()
    gc.disable()
    with suppress(ImportError):  # ottla/node/process.py
        importlib.import_module("uvloop")
    importlib.import_module("ottla.node.process")
    main: Callable[[list[str]], int] = importlib.import_module("ottla.cli.commands.start").main
    gc.freeze()
    if was_enabled:
        gc.enable()
    return main


def _with_files_of_its_own(arguments: Sequence[str], output: int | IO[bytes], ready: int, alive: int) -> list[str]:
    """In the node: close all files of the parent, above all its ends of the other nodes' pipes. Its objects of them are never freed."""
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
