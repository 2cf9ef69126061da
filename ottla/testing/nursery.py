"""Starts nodes by a fork of a process that has imported the server: `ottla.testing.inside.nursery`, one for each environment.

The start of a node takes half a second of processor time, most of it for imports. With a nursery, function-scoped clusters need
them only once.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, ClassVar

import ottla
from ottla.testing.inside.faults import NodeFaults

#: Variables that differ from test to test, and have no effect on a node.
PASSING = frozenset({"PYTEST_CURRENT_TEST"})
ANSWER_SECONDS_MAX = 30.0
#: The socket is closed before the exit code arrives: wait this long for it.
END_SECONDS_MAX = 5.0


class ForkedNode:
    """A node's process, with the methods of subprocess.Popen.

    It is a child of the nursery, which reports its exit code by a pipe.
    """

    def __init__(self, pid: int, exit_fd: int, ready_fd: int, alive_fd: int, control: socket.socket) -> None:
        self.pid = pid
        self.ready_fd = ready_fd
        self.alive_fd = alive_fd
        self.returncode: int | None = None
        self._exit_fd = exit_fd
        self._control = control

    def poll(self) -> int | None:
        if self.returncode is None and self._exit_fd >= 0:
            self._look()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """
        Raises:
            subprocess.TimeoutExpired: the process still runs after the timeout.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise subprocess.TimeoutExpired("a node", timeout or 0)
            _readable((self._exit_fd,), left)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended, and the nursery will report that soon
                os.kill(self.pid, number)

    def spoil(self, faults: NodeFaults) -> None:
        """Send the faults to the node. Return when they are in force, or the node has ended.

        Raises:
            TimeoutError: it does not answer.
        """
        with suppress(ConnectionRefusedError):  # as in `send_signal`
            self._control.sendall(faults.encoded())
            answer_fd = self._control.fileno()
            said = _readable((answer_fd, self._exit_fd), ANSWER_SECONDS_MAX)
            if not said:
                raise TimeoutError(f"node process {self.pid} does not take its faults")
            if answer_fd in said:
                self._control.recv(16)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _look(self) -> None:
        if not _readable((self._exit_fd,), 0):
            return
        written = os.read(self._exit_fd, 16)
        if not written:  # the nursery was killed, so no exit code will come for this node
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        self.returncode = int(written or -signal.SIGKILL)
        os.close(self._exit_fd)
        self._exit_fd = -1
        self._control.close()


class Nursery:
    """One nursery process. It ends with this process."""

    _all: ClassVar[dict[tuple[tuple[str, str], ...], Nursery]] = {}
    _lock = threading.Lock()

    @classmethod
    def here(cls) -> Nursery:
        """Return the nursery for nodes with the present environment of this process."""
        environment = tuple(sorted((name, text) for name, text in os.environ.items() if name not in PASSING))
        with cls._lock:
            found = cls._all.get(environment)
            if found is None or not found.is_usable:
                found = cls._all[environment] = cls()
            return found

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._socket, theirs = socket.socketpair()
        # As in ottla/processes/children.py, the user's folders must not shadow our modules, which are found in the folder of
        # this very package.
        root = str(Path(ottla.__file__).parent.parent)
        paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "ottla.testing.inside.nursery", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env={**os.environ, "PYTHONPATH": paths},
                process_group=0,
            )
        self._environment = {**os.environ, "PYTHONPATH": paths}
        atexit.register(self.close)

    @property
    def is_usable(self) -> bool:
        return self._owner == os.getpid() and self._process.poll() is None

    def spawn(self, arguments: Sequence[str], output: IO[bytes], directory: str, faults: NodeFaults) -> ForkedNode:
        """Start `ottla start` with these arguments and faults, in this directory.

        Raises:
            RuntimeError: the nursery has ended; the message says how. Its own output is above.
            OSError: it cannot fork.
        """
        ready_fd, ready_write = os.pipe()
        alive_read, alive_fd = os.pipe()
        exit_fd, exit_write = os.pipe()
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        control.settimeout(ANSWER_SECONDS_MAX)
        request = json.dumps([list(arguments), self._environment, directory, faults.encoded().decode()]).encode()
        try:
            with self._lock:
                given = [output.fileno(), ready_write, alive_read, theirs.fileno(), exit_write]
                socket.send_fds(self._socket, [len(request).to_bytes(4, "big")], given)
                self._socket.sendall(request)
                answered = self._socket.recv(4)
        except OSError:
            answered = b""
        finally:
            theirs.close()
            for fd in (ready_write, alive_read, exit_write):
                os.close(fd)
        pid = int.from_bytes(answered, "big", signed=True)
        if len(answered) == 4 and pid > 0:
            return ForkedNode(pid, exit_fd, ready_fd, alive_fd, control)
        control.close()
        for fd in (ready_fd, alive_fd, exit_fd):
            os.close(fd)
        if len(answered) == 4:
            raise OSError(-pid, f"the process that forks nodes cannot: {os.strerror(-pid)}")
        raise RuntimeError(f"the process that forks nodes has ended: {self._how_it_ended()}")

    def _how_it_ended(self) -> str:
        try:
            code = self._process.wait(END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            return f"process {self._process.pid} lives, and does not answer"
        if code >= 0:
            return f"exit code {code}"
        cause = ", by the kernel for want of memory or by another process" if code == -signal.SIGKILL else ""
        return f"{signal.Signals(-code).name}{cause}"

    def close(self) -> None:
        if self._owner == os.getpid():
            self._socket.close()
            self._process.wait()


def _readable(fds: Sequence[int], seconds: float | None) -> list[int]:
    """Return the sockets that can be read, or whose other end is closed.

    It uses no select, which ends at 1,024: a test may have thousands of sockets open.
    """
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(None if seconds is None else seconds * 1000)]
