"""The fence: for some milliseconds no process of the cluster runs, so that all their files are of one moment.

The processes are stopped by SIGSTOP, found by the locks that they hold on their log directories. Another process, the guard,
lets them run again if this one dies, or takes longer than `LIMIT_S`: no failure of a snapshot leaves a cluster stopped.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from ottla.client.failures import Failure
from ottla.storage.directories.log_dirs import LOCK
from ottla.storage.errors import LogDirectoryLocked
from ottla.storage.files import OsFiles

#: In a test no broker was fenced after 3 s, but one was after 4 s, because its heartbeat was overdue.
LIMIT_S = 2.5
#: A thread in a system call stops at the call's end. A thread that waits for a disk that hangs does not stop.
STOPPED_WITHIN_S = 1.0
POLL_S = 0.0002
#: The fields of `struct flock` on Linux with 64 bits: type, whence, start, length, process.
FLOCK = struct.Struct("hhqqi")
#: The process id of a lock's holder on systems other than Linux, which do not name it.
UNKNOWN = -1
STOPPED = frozenset("TtZX")

#: The program of the guard. It must not depend on this process, and imports only fast modules.
#: It reports when it begins to wait. If it has waited for too long, it reports that before it lets the processes run.
GUARD = """
import os, select, signal, sys
os.write(1, b".")
late = not select.select([0], [], [], float(sys.argv[1]))[0]
if late:
    os.write(1, b".")
for pid in map(int, sys.argv[2:]):
    try:
        os.kill(pid, signal.SIGCONT)
    except OSError:
        pass
sys.exit(late)
"""


class NotFenced(Failure):
    """The nodes could not be stopped for long enough: the machine or the disk is too busy."""


@dataclass(slots=True)
class Fence:
    """The stopped processes, and how long they were stopped."""

    pids: list[int]
    seconds: float = 0.0


def lock_holder(directory: str) -> int | None:
    """Return the process that holds the lock of a log directory, or None.

    Raises:
        Failure: this process cannot see the holder.
    """
    path = os.path.join(directory, LOCK)
    if sys.platform != "linux":
        return UNKNOWN if _is_locked(path) else None
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    finally:
        os.close(descriptor)
    kind, _, _, _, pid = FLOCK.unpack(answer)
    if kind == fcntl.F_UNLCK:
        return None
    if pid <= 0:
        raise Failure(
            f"{path} is held by a process of another container or machine",
            "run this where the nodes run: the fence stops their processes",
        )
    return int(pid)


def _is_locked(path: str) -> bool:
    if not os.path.exists(path):
        return False
    try:
        OsFiles().lock(path).release()
    except LogDirectoryLocked:
        return True
    return False


def holders(directories: Iterable[str]) -> list[int]:
    """Return the processes that hold locks of these log directories, each once."""
    return list(dict.fromkeys(pid for each in directories if (pid := lock_holder(each)) is not None))


@contextmanager
def fence(directories: Sequence[str]) -> Iterator[Fence]:
    """Stop the processes of these log directories inside the block. Those that were stopped before stay so afterwards.

    Raises:
        NotFenced: they did not stop in time, or the guard let them run before the end: what was read inside is not valid.
        Failure: they cannot be stopped.
    """
    if directories and sys.platform != "linux":
        raise Failure("a running cluster can be snapshotted on Linux only", "stop it first: then it needs no fence")
    pids = [pid for pid in holders(directories) if not _stands(pid)]
    found = Fence(pids)
    if not pids:
        yield found
        return
    guard = subprocess.Popen(
        [sys.executable, "-S", "-E", "-c", GUARD, str(LIMIT_S), *map(str, pids)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True,
    )  # fmt: skip
    assert guard.stdin is not None and guard.stdout is not None
    if not guard.stdout.read(1):
        raise Failure("the guard that lets the nodes go on did not start: nothing was stopped")
    began = time.monotonic()
    try:
        for pid in pids:
            _signal(pid, signal.SIGSTOP)
        _wait_until_all_stand(pids, guard)
        yield found
    finally:
        for pid in pids:
            with suppress(Failure):
                _signal(pid, signal.SIGCONT)
        found.seconds = time.monotonic() - began
        guard.stdin.close()
        late = guard.wait()
        guard.stdout.close()
    if late:
        raise _let_go()


def _let_go() -> NotFenced:
    return NotFenced(
        f"the nodes stood still for more than {LIMIT_S:g} s and were let go before everything was copied",
        "take it while fewer records are written, or with the nodes stopped; nothing was kept of it",
    )


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # an ended process writes nothing either
    except PermissionError:
        raise Failure(
            f"process {pid} of another user cannot be stopped for the moment of the snapshot", "run this as that user"
        ) from None


def _wait_until_all_stand(pids: Iterable[int], guard: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + STOPPED_WITHIN_S
    waiting = list(pids)
    while True:
        waiting = [pid for pid in waiting if not _stands(pid)]
        # If the machine itself was paused meanwhile, the guard may have let the processes run before they were stopped. It
        # would not do so again.
        if _has_spoken(guard):
            raise _let_go()
        if not waiting:
            return
        if time.monotonic() > deadline:
            raise NotFenced(
                f"process {waiting[0]} did not stop within {STOPPED_WITHIN_S:g} s",
                "does it wait for a disk that hangs?",
            )
        time.sleep(POLL_S)


def _has_spoken(guard: subprocess.Popen[bytes]) -> bool:
    """Return whether the guard has waited for too long, or has ended."""
    assert guard.stdout is not None
    return bool(select.select([guard.stdout], [], [], 0)[0])


def _stands(pid: int) -> bool:
    """Return whether all threads of the process are stopped, or the process has ended."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except FileNotFoundError:
        return True
    return all(_state(pid, thread) in STOPPED for thread in threads)


def _state(pid: int, thread: str) -> str:
    try:
        with open(f"/proc/{pid}/task/{thread}/stat", encoding="latin-1") as file:
            return file.read().rpartition(") ")[2][:1]
    except (FileNotFoundError, ProcessLookupError):
        return "X"
