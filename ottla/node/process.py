"""The process of one node: signals, the parent's pipes, the garbage collector, and the exit code."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from ottla.node.node import FAILED_TO_START, Node
from ottla.node.parent import LOG_FILE_VARIABLE, inherited_pipes, report_ready, stop_with_parent
from ottla.server import log_setup
from ottla.server.config.key import ConfigError
from ottla.server.loop_watch import LoopWatch
from ottla.server.world import RealWorld, World
from ottla.storage.errors import FULL, StorageFailure

log = logging.getLogger("ottla.node")

#: Objects made between two collections of the youngest generation. The objects of a request are freed by their reference
#: counts, so collections only find those that closed connections leave behind; 700, Python's default, would run one every few
#: requests. A collection is in one turn of the loop: 2,000 objects take 0.2 ms, the 10,000 of the next generation 1 ms, and
#: smaller generations cost no more in all, since each object is looked at once in either. With 10,000 objects it was 5 ms in
#: the middle of what created partitions. The oldest generation is collected after 100 million objects.
GC_THRESHOLDS = (2_000, 4, 12_500)


FULL_DISK_REMEDY = (
    "make a few MiB of room on that disk. A node writes small files before it serves (its vote, leader epochs, checkpoints); once it runs, "
    "deleted topics and lower retention.ms or retention.bytes make more. Do not remove files of a log directory by hand"
)


def run(
    properties: Mapping[str, str],
    where: Mapping[str, str] | None = None,
    *,
    outside: Callable[[asyncio.AbstractEventLoop], RealWorld] = RealWorld,
    make: Callable[[World, Mapping[str, str], Mapping[str, str] | None], Node] = Node,
) -> int:
    """Run a node until a signal stops it; return the process's exit code. Tests give another `outside` (ottla/testing/inside)."""
    log_file = os.environ.get(LOG_FILE_VARIABLE)
    try:
        stream = log_setup.LogFile(log_file) if log_file else None
    except OSError as failure:
        print(f"ottla start: the log {log_file} cannot be written: {failure.strerror}", file=sys.stderr)
        return 1
    log_setup.set_up(os.environ.get("OTTLA_LOG_LEVEL", "INFO"), stream)
    raise_descriptors()
    factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    try:
        import uvloop

        factory = uvloop.new_event_loop
    except ImportError:
        pass  # not on this platform
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(_run(properties, where, outside, make))


def raise_descriptors() -> None:
    """Allow as many open files and connections as the process may have, as the JVM does: the usual soft limit is 1,024 of 524,288."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as failure:  # macOS has no unlimited soft limit
            log.info("The limit of open files stays %d: %s", soft, failure)


async def _run(
    properties: Mapping[str, str],
    where: Mapping[str, str] | None,
    outside: Callable[[asyncio.AbstractEventLoop], RealWorld],
    make: Callable[[World, Mapping[str, str], Mapping[str, str] | None], Node],
) -> int:
    loop = asyncio.get_running_loop()
    real = outside(loop)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    ready_fd, alive_fd = inherited_pipes()
    stop_with_parent(loop, alive_fd, stop)
    node: Node | None = None
    _tune_collector()
    watch = LoopWatch(loop)
    watch.start()
    try:
        node = make(real.world, properties, where)
        node.metrics.add(watch)
        starting = real.world.spawn(_started(node), "start")
        stopping = real.world.spawn(stop.wait(), "stop signal")
        ends: list[asyncio.Future[Any]] = [starting, stopping, node.failed]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if starting.done() and not node.failed.done():
            if (failure := starting.result()) is not None:
                _explain(failure)
                return 1
            gc.freeze()
            report_ready(ready_fd)
            await asyncio.wait(ends[1:], return_when=asyncio.FIRST_COMPLETED)
        if node.failed.done():
            _explain(node.failed.result())
        await node.stop()
        if node.failed.done():
            return 1
    except FAILED_TO_START as failure:
        _explain(failure)
        return 1
    finally:
        if ready_fd >= 0:
            os.close(ready_fd)
        await real.close()
        watch.stop()
    return 0


async def _started(node: Node) -> BaseException | None:
    """Start the node; return an expected error as a result, because a task's exception would be logged as a bug."""
    try:
        await node.start()
    except FAILED_TO_START as failure:
        return failure
    return None


def _explain(failure: BaseException) -> None:
    """One sentence for the person who started the node; a traceback would only hide it."""
    log.debug("Could not start", exc_info=failure)
    remedy = failure.what_to_try if isinstance(failure, ConfigError) else FULL_DISK_REMEDY if is_full(failure) else None
    # Standard error may be a file on the disk that is full: the node has to be stopped in order all the same.
    with suppress(OSError):
        print(f"ottla start: {failure}", file=sys.stderr)
        if remedy:
            print(f"  try: {remedy}", file=sys.stderr)


def is_full(failure: BaseException) -> bool:
    cause = failure.cause if isinstance(failure, StorageFailure) else failure
    return isinstance(cause, OSError) and cause.errno in FULL


def _tune_collector() -> None:
    """Collect from here on. The 2 MB of garbage that the imports leave are kept: to find them takes a tenth of the start's time."""
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()
