"""A worker process for long work in Python: on a thread such work would take the event loop's time (GIL).

The process has an object, whose methods the node calls, one at a time; arguments, results and exceptions are pickled. The
process is started with the first object, and inherits only two pipes: no lock of a log directory, no listening socket. It ends
when the pipes are closed, even if the node was killed: one of its threads waits for that.

In the simulator the object is called directly (`tests/sim/world.py`).
"""

from __future__ import annotations

import gc
import logging
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from struct import Struct
from typing import IO, Any, Protocol, TypeVar

log = logging.getLogger(__name__)

_LENGTH = Struct(">Q")
#: -P and the parent's own path: a file in the working directory must not be imported instead of a module of Ottla.
_BOOT = "import sys; sys.path[:] = sys.argv[1:]; from ottla.server.worker_process import serve; serve()"
#: If there are not enough processors for both, the event loop has priority.
_NICENESS = 5
#: What a process that gives way adds to it. With nice 10 it has a tenth of the weight of one with nice 0, and still the time of
#: its deadlines on a machine with ten processes that never wait; with nice 19, or as SCHED_IDLE, it would not.
_GIVEN_WAY = 5


T = TypeVar("T")


class WorkerEnded(Exception):
    """The process ended during a call: it was killed, or out of memory."""


class WorkFailed(Exception):
    """An exception of the worker that cannot be pickled, as text."""


class WorkerProcess(Protocol):
    """A process with an object for long work."""

    async def make(self, factory: Callable[..., object], *args: object) -> None:
        """Create the object, `factory(*args)`. It replaces the former one."""

    async def call(self, method: str, *args: object) -> Any: ...

    async def close(self) -> None:
        """Kill the process, also during a call. Later calls start another process."""


class RunOnThread(Protocol):
    """Calls a function on a thread (`Workers.run`)."""

    async def __call__(self, function: Callable[..., T], *args: object) -> T: ...


class OwnProcess:
    """A separate `WorkerProcess`. The thread of `run` only waits for the pipes."""

    def __init__(self, run: RunOnThread) -> None:
        self._run = run
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    async def make(self, factory: Callable[..., object], *args: object) -> None:
        await self._run(self._exchange, (factory, args))

    async def call(self, method: str, *args: object) -> Any:
        return await self._run(self._exchange, (method, args))

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()  # it has no state to save, and the waiting thread returns at once
            await self._run(_reap, process)

    def _exchange(self, request: tuple[object, tuple[object, ...]]) -> object:
        process = self._process
        if process is None:
            process = self._process = _start()
        assert process.stdin is not None and process.stdout is not None
        try:
            _send(process.stdin, request)
            succeeded, answer = _receive(process.stdout)
        except (EOFError, OSError) as error:
            raise WorkerEnded(f"the worker process {process.pid} has ended") from error
        if succeeded:
            return answer
        raise answer


def _start() -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-c", _BOOT, *filter(None, sys.path)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _reap(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        try:
            pipe.close()
        except OSError:
            log.debug("the worker process has not read the whole call", exc_info=True)
    process.wait()


def _send(pipe: IO[bytes], message: object) -> None:
    data = pickle.dumps(message)
    pipe.write(_LENGTH.pack(len(data)) + data)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> tuple[Any, Any]:
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (length,) = _LENGTH.unpack(head)
    data = pipe.read(length)
    if len(data) < length:
        raise EOFError
    message: tuple[Any, Any] = pickle.loads(data)
    return message


# In the process


def serve() -> None:
    """The main function of the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the node itself ends this process
    os.nice(_NICENESS)
    gc.disable()  # the work creates many tuples and no reference cycles
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a print must not look like a result
    requests: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    worker: object = None
    while True:
        what, arguments = requests.get()
        try:
            if isinstance(what, str):
                answer = (True, getattr(worker, what)(*arguments))
            else:
                worker = None  # the memory of the former object is freed before the next one allocates as much
                worker = what(*arguments)
                answer = (True, None)
        except Exception as error:
            answer = (False, _portable(error))
        try:
            _send(answers, answer)
        except BrokenPipeError:
            os._exit(0)  # the node has ended


def give_way() -> None:
    """Lower the priority of this process once more, after its start: the imports of a process have a deadline."""
    os.nice(_GIVEN_WAY)


def _read(requests: queue.SimpleQueue[tuple[Any, Any]]) -> None:
    try:
        while True:
            requests.put(_receive(sys.stdin.buffer))
    except (EOFError, OSError):
        os._exit(0)  # the node has ended


def _portable(error: Exception) -> Exception:
    try:
        copy = pickle.loads(pickle.dumps(error))
    except Exception:
        copy = None
    return error if type(copy) is type(error) else WorkFailed(f"{type(error).__name__}: {error}")
