"""The judge of an input: which exceptions it may raise, and how much time and memory it may take (invariant 51).

    exceptions   only the refusals of the target
    time         100 ms of this process's CPU; measured again before it counts, because a garbage collection is not its fault
    memory       64 MiB more than before; the peak is reset and the input run again when the process has grown
    hangs        a timer of CPU time that interrupts an input which is still running after a quarter of a second

Findings with the same kind and innermost function of the product are one, so that a thousand inputs of one bug are one finding.
Its input is the smallest one.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import os
import re
import resource
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from tests.fuzz.target import Target
from tests.rules.sources import short_path

ROOT = Path(__file__).parent.parent.parent
CPU_NS_MAX = 100_000_000
MEMORY_BYTES_MAX = 64 * 1024 * 1024
#: A growth of the peak by less is ignored, because libFuzzer itself keeps its inputs.
NOTICED_BYTES = 8 * 1024 * 1024
TICK_S = 0.25
RERUNS = 3
PRODUCT = ("ottla",)
TOO_LONG, TOO_MUCH = "takes too long", "takes too much memory"
CLEAR_REFS = "/proc/self/clear_refs"


class Finding(NamedTuple):
    """A finding. Its `kind` says what went wrong and where, in words that do not change when lines move."""

    target: str
    kind: str
    data: bytes
    text: str


class Hung(BaseException):
    """The exception that interrupts an endless input. It is no Exception, so that no code under test catches it."""


class Apart:
    """The CPU time that does not count for an input: a process generates each codec once."""

    def __init__(self) -> None:
        self.ns = 0
        self.now = False

    def __enter__(self) -> None:
        self.now, self._began = True, time.process_time_ns()

    def __exit__(self, *exception: object) -> None:
        self.now = False
        self.ns += time.process_time_ns() - self._began


APART = Apart()


def cpu_ns() -> int:
    return time.process_time_ns() - APART.ns


class Judge:
    """Judges the inputs with which it is called, and calls `found` with the findings."""

    def __init__(self, target: Target, found: Callable[[Finding], None]) -> None:
        self.target = target
        self._found = found
        self._number = self._number_at_tick = 0
        self._running = False
        give_back_free_memory()
        reset_peak()  # memory that the process used before does not count for this target
        self._peak_kb = peak_kb()

    def __call__(self, data: bytes) -> None:
        self._number += 1
        began = cpu_ns()
        ended = self._run(data, self._found)
        if ended and cpu_ns() - began > CPU_NS_MAX:
            self._check_time(data)
        if peak_kb() - self._peak_kb > NOTICED_BYTES // 1024:
            self._check_memory(data)

    def watch(self, on: bool = True) -> None:
        """Interrupt inputs that hang from now on."""
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, self._tick if on else signal.SIG_DFL)
        if on:
            signal.setitimer(signal.ITIMER_VIRTUAL, TICK_S, TICK_S)

    def _tick(self, number: int, frame: FrameType | None) -> None:
        if self._running and not APART.now and self._number == self._number_at_tick:
            raise Hung
        self._number_at_tick = self._number

    def _run(self, data: bytes, found: Callable[[Finding], None]) -> bool:
        """Run an input, and return whether it ended by itself."""
        try:
            self._running = True
            self.target.run(data)
        except self.target.refusals:
            pass
        except Exception as error:
            self._running = False
            found(Finding(self.target.name, kind_of(error), data, traceback.format_exc()))
        except Hung:
            self._running = False
            # The place of the interrupt is chance, so it is in the traceback and not in the kind.
            found(Finding(self.target.name, TOO_LONG, data, traceback.format_exc()))
            return False
        finally:
            self._running = False
        return True

    def _check_time(self, data: bytes) -> None:
        times = []
        for _ in range(RERUNS):
            gc.collect()
            began = cpu_ns()
            self._run(data, _drop)
            times.append(cpu_ns() - began)
            self._number += 1
        if min(times) > CPU_NS_MAX:
            text = f"{len(data)} bytes took {min(times) / 1e6:.0f} ms of CPU\n"
            self._found(Finding(self.target.name, TOO_LONG, data, text))

    def _check_memory(self, data: bytes) -> None:
        used = memory_of(lambda: self._run(data, _drop))
        self._number += 1
        if used > MEMORY_BYTES_MAX:
            text = f"{len(data)} bytes took {used / 2**20:.0f} MiB of memory\n"
            self._found(Finding(self.target.name, TOO_MUCH, data, text))
        self._peak_kb = peak_kb()


def _drop(finding: Finding) -> None:
    """Ignore the finding, which the first run has reported."""


def peak_kb() -> int:
    """Return the peak of the process's memory since `reset_peak`.

    On Linux it is VmHWM, because ru_maxrss begins with the size of the process that called exec and never falls below it: in a
    worker of a large process an input of 100 MiB would not be noticed.
    """
    if not os.path.exists(CLEAR_REFS):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return _status_kb("VmHWM")


def memory_of(call: Callable[[], None]) -> int:
    """Return by how many bytes the process grew during the call. Only Linux can measure this: elsewhere it is 0."""
    if not os.path.exists(CLEAR_REFS):
        return 0
    gc.collect()
    give_back_free_memory()
    before = _status_kb("VmRSS")
    reset_peak()
    call()
    used = _status_kb("VmHWM") - before
    give_back_free_memory()
    reset_peak()
    return used * 1024


def give_back_free_memory() -> None:
    """Return the heap's free memory to the system. It stays resident otherwise, and an input that takes its memory from there
    would not make the process larger.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def reset_peak() -> None:
    """Reset the peak of the process's memory, where the kernel allows it."""
    if os.path.exists(CLEAR_REFS):
        with open(CLEAR_REFS, "w") as file:
            file.write("5")


def _status_kb(name: str) -> int:
    file = os.open("/proc/self/status", os.O_RDONLY)
    try:
        text = os.read(file, 4096)
    finally:
        os.close(file)
    found = re.search(rb"%s:\s+(\d+) kB" % name.encode(), text)
    assert found is not None
    return int(found[1])


def kind_of(error: BaseException) -> str:
    """Return the kind of error and its place. A typed error counts where it leaves the product, any other where it was
    raised.
    """
    places = product_places(error) or ["the harness"]
    name = type(error).__name__
    if type(error).__module__.partition(".")[0] in PRODUCT:
        return f"{name} out of {places[0]}"
    return f"{name} in {places[-1]}"


def product_places(error: BaseException) -> list[str]:
    """Return file and function of the frames inside of the product, outermost first, or else those of the harness."""
    frames = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    places = [
        (Path(code.co_filename).resolve(), code.co_name) for code in frames if code.co_filename.startswith(str(ROOT))
    ]
    inside = [(path.relative_to(ROOT), name) for path, name in places]
    return [f"{short_path(str(path))}:{name}" for path, name in inside if path.parts[0] == "ottla"] or [
        f"{path}:{name}" for path, name in inside if path.parts[0] == "tests" and path.name != "judge.py"
    ]


def short_name(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()[:12]
