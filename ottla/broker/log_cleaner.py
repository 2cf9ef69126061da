"""Drives the log cleaner beside the clients: it decides on the loop, works in a process of its own, and waits in threads.

The compaction itself is in `storage/cleaner/cleaner.py`. The process is started when a log is due and ends when none is: an
idle node keeps no memory for it.
"""

from __future__ import annotations

import asyncio
import logging

from ottla.broker.configs import BrokerConfigs
from ottla.broker.scheduled_tasks import ClockJumps
from ottla.protocol.work import DiskJob
from ottla.server.clock import pause, run_in_turns
from ottla.server.worker_process import WorkerEnded, WorkerProcess
from ottla.server.workers import Priority
from ottla.server.world import World
from ottla.storage.cleaner.cleaner import Advance, Begin, Cleaner, PassEnded, Step
from ottla.storage.cleaner.cleaner_pass import CleaningPass, PassProgress
from ottla.storage.directories.logs import Logs

log = logging.getLogger(__name__)


class LogCleaner:
    """The log cleaner of a broker: its schedule, its process and its threads."""

    def __init__(self, world: World, configs: BrokerConfigs, logs: Logs, clock_jumps: ClockJumps) -> None:
        self._world = world
        self._configs = configs
        self._clock_jumps = clock_jumps
        self._cleaner = Cleaner(logs)
        self._process: WorkerProcess = world.workers.process()
        self._task: asyncio.Task[None] | None = None
        #: The directory that the pass works on, and when its work began.
        self._began: tuple[str, int] | None = None

    async def start(self) -> None:
        if self._configs["log.cleaner.enable"]:
            self._task = self._world.spawn(self._run(), "log cleaner")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._process.close()

    async def _run(self) -> None:
        while True:
            try:
                worked = await self._pass()
            except Exception:
                log.exception("Compaction failed")
                worked = False
            if not worked:
                await self._process.close()
                await pause(self._world.session_clock, self._configs["log.cleaner.backoff.ms"])

    async def _pass(self) -> bool:
        """Clean the dirtiest log in one pass; return False if no log needs cleaning."""
        cleaner = self._cleaner
        cleaner.memory_bytes = self._configs["log.cleaner.dedupe.buffer.size"]
        cleaner.load_factor = self._configs["log.cleaner.io.buffer.load.factor"]
        steps = cleaner.run(self._clock_jumps.expiry_ms())
        self._began = None
        try:
            worked = await run_in_turns(self._world.clock, steps, do=self._do)
            self._log_duration()
            return worked
        except BaseException:
            await (
                self._process.close()
            )  # the node stops: the process must not write while its unfinished files are removed
            raise
        finally:
            steps.close()

    def _log_duration(self) -> None:
        """Log the duration, on the line after that of storage/cleaner/cleaner.py, which has no clock."""
        if self._began is not None:
            directory, began_ms = self._began
            log.info("Log cleaner pass over %s took %d ms", directory, self._world.clock.mono_ms() - began_ms)

    async def _do(self, step: Step) -> PassProgress | None:
        match step:
            case Begin(job):
                self._began = (job.directory, self._world.clock.mono_ms())
                try:
                    await self._process.make(CleaningPass, self._world.files, job)
                except (WorkerEnded, OSError) as error:
                    raise PassEnded(str(error)) from error
            case Advance(first_base):
                return await self._advance(first_base)
            case DiskJob(directory, function):
                await self._world.workers.on_disk(directory, Priority.CHECKPOINT, function)
        return None

    async def _advance(self, first_base: int) -> PassProgress:
        """Run one slice of the pass, and pause after it for log.cleaner.io.max.bytes.per.second."""
        clock = self._world.clock
        began_ns = clock.mono_ns()
        try:
            progress: PassProgress = await self._process.call("advance", first_base)
        except WorkerEnded as error:
            raise PassEnded(str(error)) from error
        rate = self._configs["log.cleaner.io.max.bytes.per.second"]
        if rate > 0:
            await asyncio.sleep(max(0, progress.moved_bytes / rate - (clock.mono_ns() - began_ns) / 1e9))
        return progress
