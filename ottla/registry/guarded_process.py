"""Processes that work on bytes from others.

The time and the memory of each are bounded, and a process that needs more is killed.

    question    parts, each u32 length, bytes, and a length of 0 after the last one      to its standard input
    answer      u32 length, bytes                                                        from its standard output

The two sides agree on the number of answers to a question.

A C library can make a billion objects of ten bytes, or recurse until the process dies. Then no exception is raised, and no time
limit of the event loop has an effect. Here such bytes only kill one process, and the answers before show which bytes it was
working on.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, suppress

START_S_MAX = 30.0
#: The memory that a process may allocate.
MEMORY_BYTES_MAX = 1 << 30
#: If the owner of a process has died, the process ends itself this much later than the owner would have killed it.
ORPHAN_S = 1.0
#: Answers are written at this interval. If the process dies, its owner lacks those of the last interval, and repeats their
#: questions.
SAID_AFTER_S = 0.005
LENGTH_BYTES = 4
_READ_AHEAD_BYTES = 1 << 20


class ProcessEnded(Exception):
    """The process took too long, or has ended. The text says which, for the user."""


# -- In the owner --------------------------------------------------------------------------------------------------------


class GuardedProcess:
    """One process. It takes one question at a time."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._process = process
        self._input, self._output = process.stdin, process.stdout
        self._received = bytearray()
        self._answers: deque[bytes] = deque()
        #: What the owner has sent to it already, by the owner's keys: a schema is sent once.
        self.known: set[int] = set()

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    async def ask(self, parts: Iterable[bytes], limit_s: float) -> None:
        """Send one question, whose parts are not empty. Between two parts other tasks can run.

        Raises:
            ProcessEnded: the process does not read it within `limit_s`. If the process has ended, `receive` reports it.
        """
        try:
            async with asyncio.timeout(limit_s):
                with suppress(OSError):
                    for part in parts:
                        self._input.writelines((len(part).to_bytes(LENGTH_BYTES, "big"), part))
                        await self._input.drain()
                        await asyncio.sleep(0)
                    self._input.write(bytes(LENGTH_BYTES))
        except TimeoutError:
            raise ProcessEnded(f"it takes more than {limit_s:g} s") from None

    async def receive(self, limit_s: float) -> bytes:
        """Return the next answer.

        Raises:
            ProcessEnded: there is none within `limit_s`, or the process has ended. The process cannot be used again.
        """
        if not self._answers:
            await self._wait(limit_s)
        return self._answers.popleft()

    async def receive_some(self, limit_s: float) -> list[bytes]:
        """Return the next answer, together with those that have arrived with it: waiting for each of 50,000 answers would take
        a second.

        Raises:
            ProcessEnded: as `receive`.
        """
        if not self._answers:
            await self._wait(limit_s)
        found = list(self._answers)
        self._answers.clear()
        return found

    async def _wait(self, limit_s: float) -> None:
        try:
            async with asyncio.timeout(limit_s):
                await self._input.drain()
                while not self._take_whole():
                    data = await self._output.read(_READ_AHEAD_BYTES)
                    if not data:
                        raise asyncio.IncompleteReadError(bytes(self._received), None)
                    self._received += data
        except TimeoutError:
            raise ProcessEnded(f"it takes more than {limit_s:g} s") from None
        except (OSError, asyncio.IncompleteReadError):
            code = await self._process.wait()
            if code == -signal.SIGALRM:
                raise ProcessEnded(f"it takes more than {limit_s:g} s") from None
            raise ProcessEnded(f"it takes too much memory, or is nested too deeply ({_name_of(code)})") from None

    def _take_whole(self) -> bool:
        """Take the complete answers that have arrived. Return whether there are any."""
        at, received = 0, self._received
        while at + LENGTH_BYTES <= len(received):
            begin = at + LENGTH_BYTES
            end = begin + int.from_bytes(received[at:begin], "big")
            if end > len(received):
                break
            self._answers.append(bytes(received[begin:end]))
            at = end
        del received[:at]
        return bool(self._answers)

    async def end(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


class GuardedProcesses:
    """Processes of one module. They are started when they are needed, and kept for later questions."""

    def __init__(self, module: str, answer_s: float, memory_bytes_max: int = MEMORY_BYTES_MAX) -> None:
        """Take the name of a module that calls `serve` when it is run. One answer may take `answer_s`."""
        self.answer_s = answer_s
        self._command = (sys.executable, "-m", module, str(answer_s + ORPHAN_S), str(memory_bytes_max))
        self._idle: list[GuardedProcess] = []

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[GuardedProcess]:
        """Yield a process for one question.

        It is kept only if the block ends without an exception, because otherwise a question may be half answered.

        Raises:
            ProcessEnded: it has not started.
        """
        process = next((each for each in self._taken_out() if each.is_running), None) or await self._start()
        try:
            yield process
        except BaseException:
            await process.end()
            raise
        self._idle.append(process)

    async def close(self) -> None:
        for process in self._idle:
            await process.end()
        self._idle.clear()

    def _taken_out(self) -> Iterator[GuardedProcess]:
        while self._idle:
            yield self._idle.pop()

    async def _start(self) -> GuardedProcess:
        process = GuardedProcess(
            await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=_READ_AHEAD_BYTES,
            )
        )
        try:
            await process.receive(START_S_MAX)
        except BaseException:
            await process.end()
            raise
        return process


def _name_of(code: int) -> str:
    with suppress(ValueError):
        return signal.Signals(-code).name
    return f"exit code {code}"


# -- In the process ------------------------------------------------------------------------------------------------------


def serve(answers_to: Callable[[list[bytes]], Iterable[bytes | None]]) -> None:
    """Answer questions from standard input until it ends.

    `answers_to` gets the parts of a question and yields its answers; a None sends the answers so far at once.

    The limits of time and memory are the arguments of the process.
    """
    answer_s, memory_bytes_max = float(sys.argv[1]), int(sys.argv[2])
    _limit(memory_bytes_max)
    answers = sys.stdout.buffer
    # Output of libraries must not come between the answers.
    sys.stdout = sys.stderr

    said_s = 0.0

    def say(answer: bytes) -> None:
        nonlocal said_s
        answers.write(len(answer).to_bytes(LENGTH_BYTES, "big"))
        answers.write(answer)
        # If the owner woke up for each of 10,000 answers, that would take as long as the answers themselves.
        if time.monotonic() - said_s > SAID_AFTER_S:
            answers.flush()
            said_s = time.monotonic()

    say(b"")
    answers.flush()
    while parts := _question():
        # The timer's signal also ends the process in the middle of a C function.
        signal.setitimer(signal.ITIMER_REAL, answer_s)
        for answer in answers_to(parts):
            if answer is None:
                answers.flush()
                continue
            say(answer)
            signal.setitimer(signal.ITIMER_REAL, answer_s)
        answers.flush()
        signal.setitimer(signal.ITIMER_REAL, 0)


def _question() -> list[bytes]:
    """Return nothing at the end of the input."""
    parts: list[bytes] = []
    while length := int.from_bytes(sys.stdin.buffer.read(LENGTH_BYTES), "big"):
        parts.append(sys.stdin.buffer.read(length))
    return parts


def _limit(memory_bytes_max: int) -> None:
    with suppress(ImportError):  # not on Windows
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes_max, memory_bytes_max))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # If memory is short, the kernel should kill this process and not its owner.
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
