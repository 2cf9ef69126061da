"""The supervisor of a machine's processes: it starts them, writes their log, restarts them when they die, and ends them.

The processes are `ottla start` children with the parent's pipes: they stop by themselves when the supervisor has ended in any
way. Brokers stop before the controller, which a controlled shutdown needs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO

from ottla.node.parent import inherited_pipes, report_ready, stop_with_parent
from ottla.processes.admin import MachineAdmin
from ottla.processes.children import spawn
from ottla.processes.directories import check_directories, cluster_id_of
from ottla.processes.one_log import OneLog
from ottla.processes.plan import ADMIN_LISTENER, PlannedProcess, plan
from ottla.server import log_setup
from ottla.server.admin import read_address
from ottla.server.config.key import ConfigError
from ottla.server.world import RealWorld
from ottla.storage.errors import InconsistentLogDirectory
from ottla.storage.files import OsFiles

log = logging.getLogger("ottla.supervisor")

PREFIX = "supervisor"
#: An orderly stop takes a second or two. A disk that syncs slowly gets more time, as `docker stop` and Kubernetes give it.
STOP_TIMEOUT_S = 30.0
#: A killed process is gone as soon as the kernel has freed its memory.
KILL_TIMEOUT_S = 10.0
LOG_TIMEOUT_S = 2.0
#: The exit code if the kernel could not create a process: EX_OSERR of sysexits.h.
NOT_STARTED = 71
#: The shortest and the longest pause before a process that has died is started again.
FIRST_S = 0.5
#: The brokers of a machine share the processors: a crash loop of one must not take them from the others.
LONGEST_S = 30.0
#: If a process has run for this long, its start was not the cause of its death.
QUIET_S = 60.0


class Backoff:
    """The pause before a process that has died is started again: it doubles with each death, and is the shortest again after a
    quiet minute.
    """

    def __init__(self) -> None:
        self._deaths = 0

    def after(self, ran_s: float) -> float:
        """Return the pause after a death of a process that ran for `ran_s`."""
        if ran_s >= QUIET_S:
            self._deaths = 0
        self._deaths += 1
        return min(LONGEST_S, FIRST_S * 2.0 ** min(self._deaths - 1, 16))


class Supervised:
    """One process of the machine, through all its restarts."""

    def __init__(self, planned: PlannedProcess, admin: socket.socket) -> None:
        self.node_id = planned.node_id
        self.name = planned.name
        self.restarts = 0
        self.why_down: str | None = "not started"
        #: It is done when the process has first said that it serves.
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.admin_port: int = admin.getsockname()[1]
        #: A socket that is bound but does not listen: the process can listen there, and meanwhile no other process gets the
        #: port (Linux).
        self._reserved = admin
        self._properties = planned.properties | {ADMIN_LISTENER: f"127.0.0.1:{self.admin_port}"}
        self._pid = 0
        self._alive_fd = -1

    async def live(self, one_log: OneLog) -> int:
        """Run the process once, and return its exit code (minus the signal that ended it)."""
        loop = asyncio.get_running_loop()
        output = one_log.pipe(str(self.node_id))
        try:
            # The properties go through a file without a name: every user of the machine can read a command line, and some
            # properties are passwords.
            with _unnamed_file() as properties:
                properties.write(_text(self._properties))
                properties.seek(0)
                process, ready_fd, self._alive_fd = spawn(["/dev/stdin"], output, properties)
        except OSError as failure:
            log.error("Node %d (%s) cannot be started: %s", self.node_id, self.name, failure)
            return NOT_STARTED
        finally:
            os.close(output)
        self._pid, self.why_down = process.pid, None
        ended: asyncio.Future[int] = loop.create_future()

        def wait() -> None:
            code = process.wait()
            loop.call_soon_threadsafe(ended.set_result, code)

        threading.Thread(target=wait, name=f"end of {self.node_id}", daemon=True).start()
        loop.add_reader(ready_fd, self._on_ready, loop, ready_fd)
        try:
            return await ended
        finally:
            loop.remove_reader(ready_fd)
            self.why_down, self._pid = "ended", 0
            os.close(ready_fd)
            os.close(self._alive_fd)

    def _on_ready(self, loop: asyncio.AbstractEventLoop, ready_fd: int) -> None:
        if os.read(ready_fd, 64) and not self.ready.done():
            self.ready.set_result(None)
        loop.remove_reader(ready_fd)

    def signal(self, number: int) -> None:
        """Send a signal to the process, if it runs.

        The id cannot belong to another process: `live` waits for the process, and forgets the id then.
        """
        if self._pid:
            os.kill(self._pid, number)

    def close(self) -> None:
        self._reserved.close()


class Supervisor:
    """All processes of the machine."""

    def __init__(self, nodes: Sequence[PlannedProcess], one_log: OneLog) -> None:
        self.processes = [Supervised(node, _loopback_port()) for node in nodes]
        self.stop = asyncio.Event()
        #: It is set when the very first start of a process fails: with this configuration it cannot start.
        self.failed: Supervised | None = None
        self._clean = True
        self._one_log = one_log
        self._tasks: dict[Supervised, asyncio.Task[None]] = {}

    async def run(self, ready_fd: int = -1) -> int:
        """Run until `stop` is set or a first start fails; return the exit code."""
        loop = asyncio.get_running_loop()
        for process in self.processes:
            self._tasks[process] = loop.create_task(self._keep(process))
        readiness = loop.create_task(self._say_ready(ready_fd))
        stopping = loop.create_task(self.stop.wait())
        # A task that ends earlier is a bug: it has raised an exception, and its process is no longer supervised.
        await asyncio.wait([stopping, *self._tasks.values()], return_when=asyncio.FIRST_COMPLETED)
        self.stop.set()
        log.info("Stopping %d processes", len(self.processes))
        readiness.cancel()
        controller, *brokers = self.processes
        await self._end(brokers)
        await self._end([controller])
        for process, task in self._tasks.items():
            process.close()
            if task.done() and (bug := task.exception()) is not None:
                self._clean = False
                log.error("The supervisor of node %d failed", process.node_id, exc_info=bug)
        return 0 if self._clean and self.failed is None else 1

    async def _say_ready(self, ready_fd: int) -> None:
        await asyncio.gather(*(process.ready for process in self.processes))
        log.info(
            "All %d processes serve: %s",
            len(self.processes),
            ", ".join(f"{p.node_id} {p.name}" for p in self.processes),
        )
        report_ready(ready_fd)

    async def _keep(self, process: Supervised) -> None:
        """Start the process again whenever it dies, until the machine stops."""
        loop, backoff = asyncio.get_running_loop(), Backoff()
        while not self.stop.is_set():
            began = loop.time()
            code = await process.live(self._one_log)
            if self.stop.is_set():
                # A process that has no signal handler yet ends by SIGTERM itself.
                self._clean &= code in (0, -signal.SIGTERM)
                return
            if not process.ready.done():
                log.error("Node %d (%s) did not start (%s)", process.node_id, process.name, _how(code))
                self.failed = process
                self.stop.set()
                return
            pause_s = backoff.after(loop.time() - began)
            how, pause = _how(code), f"{pause_s:g}"
            process.why_down = f"ended ({how}), starts again in {pause} s"
            log.warning("Node %d (%s) ended (%s), starts again in %s s", process.node_id, process.name, how, pause)
            try:
                await asyncio.wait_for(self.stop.wait(), pause_s)
            except TimeoutError:
                process.restarts += 1

    async def _end(self, processes: Sequence[Supervised]) -> None:
        """Stop processes in order, those of one step at the same time, and kill those that do not stop."""
        for process in processes:
            process.signal(signal.SIGTERM)
        _, left = await asyncio.wait([self._tasks[each] for each in processes], timeout=STOP_TIMEOUT_S)
        for process in processes:
            if self._tasks[process] in left:
                log.error(
                    "Node %d (%s) did not stop within %d s: killed", process.node_id, process.name, STOP_TIMEOUT_S
                )
                self._clean = False
                process.signal(signal.SIGKILL)
        if left:
            await asyncio.wait(left, timeout=KILL_TIMEOUT_S)


def prepare(properties: Mapping[str, str], count: int, where: Mapping[str, str]) -> list[PlannedProcess]:
    """Return the processes to start. They belong to one cluster.

    Raises:
        ConfigError, InconsistentLogDirectory: the machine cannot be started with this configuration, or on these directories.
    """
    files = OsFiles()
    nodes = plan(properties, count, socket.gethostname(), where)
    check_directories(files, nodes, where)
    cluster_id = {"cluster.id": cluster_id_of(files, nodes, random.SystemRandom())}
    return [node._replace(properties=node.properties | cluster_id) for node in nodes]


def supervise(properties: Mapping[str, str], count: int, where: Mapping[str, str] | None = None) -> int:
    """Run a controller and `count` brokers until a signal stops them; return the process's exit code."""
    try:
        nodes = prepare(properties, count, where or {})
    except (ConfigError, InconsistentLogDirectory) as failure:
        return _refused(failure)
    one_log = OneLog(sys.stdout.fileno())
    with open(one_log.pipe(PREFIX), "w", buffering=1) as own:
        writer = log_setup.set_up(os.environ.get("OTTLA_LOG_LEVEL", "INFO"), own)
        try:
            return asyncio.run(_run(nodes, properties.get(ADMIN_LISTENER), one_log))
        except OSError as failure:  # raised by the admin listener
            return _refused(failure)
        finally:
            writer.close()
            own.close()
            one_log.join(LOG_TIMEOUT_S)


async def _run(nodes: Sequence[PlannedProcess], admin_address: str | None, one_log: OneLog) -> int:
    loop = asyncio.get_running_loop()
    ready_fd, alive_fd = inherited_pipes()
    supervisor = Supervisor(nodes, one_log)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, supervisor.stop.set)
    stop_with_parent(loop, alive_fd, supervisor.stop)
    real = RealWorld(loop)
    admin: MachineAdmin | None = None
    try:
        if admin_address:
            admin = MachineAdmin(real.world, *read_address(admin_address), supervisor.processes)
            await admin.start()
        return await supervisor.run(ready_fd)
    finally:
        if admin is not None:
            await admin.stop()
        await real.close()


def _loopback_port() -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", 0))
    return sock


def _unnamed_file() -> IO[bytes]:
    """Return a file without a name. On Linux it is in memory, and needs no writable directory."""
    if sys.platform == "linux":
        return open(os.memfd_create("properties"), "w+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)


def _text(properties: Mapping[str, str]) -> bytes:
    import javaproperties

    return str(javaproperties.dumps(dict(properties), timestamp=False)).encode()


def _how(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


def _refused(failure: Exception) -> int:
    with suppress(OSError):  # standard error may be on a full disk
        print(f"ottla start: {failure}", file=sys.stderr)
        if isinstance(failure, ConfigError) and failure.what_to_try:
            print(f"  try: {failure.what_to_try}", file=sys.stderr)
    return 1
