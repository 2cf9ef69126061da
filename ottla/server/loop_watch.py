"""The holds of the event loop: metrics of their lengths, and for each above 100 ms a log line that names the cause.

    the loop     runs a timer every 50 ms; its delay is the time that every client, and the quorum, had to wait
    a thread     sleeps until the timer would be 100 ms late; if the timer has not run by then, it records the stack of the
                 loop's thread

So requests spend no time on it, and an idle node wakes up 28 times a second for it, 0.08 ms each (a timer every 25 ms and a
check every 50 ms took 0.5 % of a core, a twentieth of what serving a consumer takes). A C function that does not release the
GIL is recorded when it returns, with the line that called it.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from ottla.protocol.slotted import mutable
from ottla.server.clock import Clock
from ottla.server.metrics import COUNTER, GAUGE, Family, Sample, gauge, quantile_of_buckets

log = logging.getLogger(__name__)

TICK_S = 0.05
HELD_MS_MAX = 100
#: The time between two checks while the loop is held, and the pause once the cause is known.
LOOK_S = 0.05
#: Delays are counted by their bit length in units of 1024 ns, like latencies.
BUCKETS = 40
MS_PER_UNIT = 1024 / 1_000_000
NS_PER_MS = 1_000_000
#: The pause between two such lines: on a machine that is busy with other work they would fill the log.
SILENT_NS = 1_000_000_000
QUANTILES = (0.5, 0.99)
#: A line shows this many frames of the node's own code, the innermost last.
FRAMES_MAX = 5
PREFIX = "ottla_event_loop"


class LoopWatch:
    """A source of metrics. It is made and read on the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread_id = threading.get_ident()
        self._due_ns = self._cpu_ns = 0
        self._silent_until_ns = self._unsaid = 0
        self._buckets = [0] * BUCKETS  # the stalls since the last scrape
        self._longest_ns = 0
        self.held = 0  # how often the loop was held for more than HELD_MS_MAX
        self.caught: str | None = None  # the stack that blocks the loop now
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look, name="loop-watch", daemon=True)

    def start(self) -> None:
        self._set_timer()
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._timer is not None:
            self._timer.cancel()
        self._thread.join()

    # On the loop

    def _set_timer(self) -> None:
        self._cpu_ns = time.thread_time_ns()
        self._due_ns = time.monotonic_ns() + int(TICK_S * 1e9)
        self._timer = self._loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        now_ns = time.monotonic_ns()
        late_ns = max(0, now_ns - self._due_ns)
        self._buckets[min((late_ns >> 10).bit_length(), BUCKETS - 1)] += 1
        self._longest_ns = max(self._longest_ns, late_ns)
        caught, self.caught = self.caught, None
        if late_ns > HELD_MS_MAX * NS_PER_MS:
            self.held += 1
            self._say(now_ns, late_ns, caught)
        self._set_timer()

    def _say(self, now_ns: int, late_ns: int, caught: str | None) -> None:
        """Log at most one line a second.

        Little CPU time in a long hold means that the node waited for the disk, or that the machine is busy.
        """
        if now_ns < self._silent_until_ns:
            self._unsaid += 1
            return
        more = f"; {self._unsaid} times more since the last such line" if self._unsaid else ""
        cpu_ms = (time.thread_time_ns() - self._cpu_ns) // NS_PER_MS
        log.warning(
            "The event loop was held for %d ms (%d ms of CPU) by %s%s",
            late_ns // NS_PER_MS,
            cpu_ms,
            caught or "what is over by now",
            more,
        )
        self._unsaid, self._silent_until_ns = 0, now_ns + SILENT_NS

    def __call__(self) -> Iterator[Family]:
        buckets, self._buckets = self._buckets, [0] * BUCKETS
        longest_ns, self._longest_ns = self._longest_ns, 0
        doc = "Milliseconds that the event loop was late since the last scrape"
        quantiles = [
            Sample({"quantile": f"{quantile:.2f}"}, quantile_of_buckets(buckets, quantile) * MS_PER_UNIT)
            for quantile in QUANTILES
        ]
        yield Family(f"{PREFIX}_lag_ms", GAUGE, doc, quantiles)
        yield gauge(f"{PREFIX}_lag_ms_max", doc, longest_ns / NS_PER_MS)
        text = f"Times that the event loop was held for more than {HELD_MS_MAX} ms"
        yield Family(f"{PREFIX}_held", COUNTER, text, [Sample({}, self.held)])

    # -- On the watching thread

    def _look(self) -> None:
        wait_s = LOOK_S
        while not self._stopped.wait(wait_s):
            due_ns = self._due_ns
            left_ns = due_ns + HELD_MS_MAX * NS_PER_MS - time.monotonic_ns()
            wait_s = left_ns / 1e9 if left_ns > 0 else LOOK_S
            if left_ns <= 0 and self.caught is None:
                where = self._where()
                if self._due_ns == due_ns:  # the loop may have continued meanwhile
                    self.caught = where

    def _where(self) -> str:
        """Return the running task, if there is one, and the node's own code on the stack of the loop's thread."""
        task = asyncio.current_task(self._loop)
        frame = sys._current_frames().get(self._thread_id)
        frames = []
        while frame is not None and not frame.f_code.co_filename.endswith("asyncio/runners.py"):
            if is_ours(frame):
                frames.append(f"{short_name(frame.f_code.co_filename)}:{frame.f_lineno} {frame.f_code.co_name}")
            frame = frame.f_back
        stack = (
            " > ".join(reversed(frames[:FRAMES_MAX])) or "nothing of the node's own code: the machine has other work"
        )
        return f"{stack} (task {task.get_name()})" if task is not None else stack


def is_ours(frame: FrameType) -> bool:
    path = frame.f_code.co_filename
    return "site-packages" not in path and not path.startswith((sys.base_prefix, "<"))


def short_name(path: str) -> str:
    """Return the last two parts of a path, as in `api/metadata.py`."""
    return "/".join(path.rsplit("/", 2)[-2:])


@contextmanager
def watched() -> Iterator[LoopWatch]:
    """Watch the running loop."""
    watch = LoopWatch(asyncio.get_running_loop())
    watch.start()
    try:
        yield watch
    finally:
        watch.stop()


# Kafka's threads have an idle ratio. Here one loop does the work of all, so its ratio has the name of each.

DOC = "Share of time in which the event loop is idle"
POOLS = (
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle",
    "kafka_network_socketserver_networkprocessoravgidle",
)
#: KIP-1190 and KIP-1229: the thread of the controller's events, which only controllers have, and the thread that loads metadata.
CONTROLLER_THREAD = "kafka_controller_controllereventmanager_avgidleratio"
LOADER_THREAD = "kafka_server_metadataloader_avgidleratio"


@mutable
class LoopMetrics:
    """The share of time between two scrapes in which the loop's thread used no CPU. The source has to be called on that thread.

    Both spellings of the names are exported, because exporters differ in how they write "percent".
    """

    clock: Clock
    is_controller: bool = False
    _last_cpu_s: float = -1.0
    _last_ms: int = -1
    _idle: float = 1.0

    def __call__(self) -> Iterator[Family]:
        usage = resource.getrusage(getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF))
        cpu_s, now_ms = usage.ru_utime + usage.ru_stime, self.clock.mono_ms()
        if self._last_ms >= 0 and now_ms > self._last_ms:
            busy = (cpu_s - self._last_cpu_s) * 1000 / (now_ms - self._last_ms)
            self._idle = min(1.0, max(0.0, 1.0 - busy))
        self._last_cpu_s, self._last_ms = cpu_s, now_ms
        for name in POOLS:
            yield gauge(f"{name}_percent", DOC, self._idle)
            yield gauge(f"{name}percent", DOC, self._idle)
        yield gauge(LOADER_THREAD, DOC, self._idle)
        if self.is_controller:
            yield gauge(CONTROLLER_THREAD, DOC, self._idle)
        yield gauge(
            "kafka_network_requestchannel_requestqueuesize", "Requests are handled as they come: there is no queue", 0
        )
