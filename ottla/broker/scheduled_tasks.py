"""The scheduled tasks of a broker: retention, removal, checkpoints, flushes, expiration of producers.

Each scheduled task is a row: its interval and its function. What waits for a disk runs on a thread of it; what touches the
logs' own state runs on the loop, because a log has one writer. A task that fails runs again after its interval: the storage
layer itself takes a failed directory offline.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Never

from ottla.broker.clock_jumps import LOOK_MS as CLOCK_LOOK_MS
from ottla.broker.clock_jumps import ClockJumps
from ottla.broker.configs import BrokerConfigs
from ottla.broker.full_disks import LOOK_MS, FullDisks
from ottla.broker.replication.group_flush import flush_log
from ottla.broker.replication.replicas import Replicas
from ottla.protocol.work import DiskJob
from ottla.server.clock import TimerHandle
from ottla.server.disk_queue import Priority
from ottla.server.turns import run_in_turns
from ottla.server.world import World
from ottla.storage.directories.log_dirs import LogDir
from ottla.storage.directories.logs import Logs
from ottla.storage.directories.retaining import retaining
from ottla.storage.errors import StorageFailure
from ottla.storage.log.log import Log

log = logging.getLogger(__name__)

#: The interval of checks of the topics' flush.ms, because log.flush.scheduler.interval.ms is "never" by default.
FLUSH_LOOK_MS_MAX = 1_000
#: The interval after which a failed directory's partitions lose their leadership. They reject writes from the failure on.
CHECK_DIRECTORIES_MS = 200


@dataclass(slots=True)
class ScheduledTask:
    name: str
    interval_ms: int
    run: Callable[[], object]
    handle: TimerHandle | None = None


def _removal_interval_ms(configs: BrokerConfigs) -> int:
    """The room of a deleted topic comes back soon after its time, as in Kafka, not after the next run of retention."""
    return int(min(configs["log.segment.delete.delay.ms"], configs["log.retention.check.interval.ms"]))


class ScheduledTasks:
    """Starts, repeats and stops the scheduled tasks of a broker."""

    def __init__(
        self,
        world: World,
        configs: BrokerConfigs,
        logs: Logs,
        replicas: Replicas,
        clock_jumps: ClockJumps,
        check_directories: Callable[[], None],
    ) -> None:
        self._world = world
        self._logs = logs
        self._replicas = replicas
        self._clock_jumps = clock_jumps
        self._check_directories = check_directories
        self.full_disks = FullDisks(world.clock, world.files, logs.open)
        self._flushing: set[int] = set()
        self._running: set[tuple[str, str]] = set()  # tasks under way, with their log directories
        self._stopped = False
        self._tasks = [
            ScheduledTask("retention", configs["log.retention.check.interval.ms"], self._retain),
            ScheduledTask("removal", _removal_interval_ms(configs), self._remove),
            ScheduledTask(
                "high watermarks", configs["replica.high.watermark.checkpoint.interval.ms"], self._checkpoint_watermarks
            ),
            ScheduledTask(
                "recovery points", configs["log.flush.offset.checkpoint.interval.ms"], self._checkpoint_recovery_points
            ),
            ScheduledTask("log directories", CHECK_DIRECTORIES_MS, check_directories),
            ScheduledTask("wall clock", CLOCK_LOOK_MS, clock_jumps.look),
            ScheduledTask("full disks", LOOK_MS, self.full_disks.look),
            ScheduledTask("flush", min(FLUSH_LOOK_MS_MAX, configs["log.flush.scheduler.interval.ms"]), self._flush),
            # Kafka's interval: half the time after which a follower leaves the ISR.
            ScheduledTask("in-sync replicas", configs["replica.lag.time.max.ms"] // 2, replicas.shrink_isrs),
            ScheduledTask("producers", configs["producer.id.expiration.check.interval.ms"], self._expire_producers),
        ]

    async def start(self) -> None:
        for task in self._tasks:
            self._schedule(task)

    async def stop(self) -> None:
        self._stopped = True
        self._replicas.log_removal.stop()
        for task in self._tasks:
            if task.handle is not None:
                task.handle.cancel()

    def _schedule(self, task: ScheduledTask) -> None:
        if not self._stopped:
            task.handle = self._world.session_clock.call_later(max(1, task.interval_ms), lambda: self._turn(task))

    def _turn(self, task: ScheduledTask) -> None:
        try:
            task.run()
        except StorageFailure as failure:
            log.error("%s: %s", task.name, failure)
        except Exception:
            log.exception("%s failed", task.name)
        finally:
            self._schedule(task)

    def _retain(self) -> None:
        self._on_each_disk("retention", self._retain_in)

    def _remove(self) -> None:
        removal = self._replicas.log_removal
        removal.rename()  # again what a full disk refused
        self._on_each_disk("removal", removal.remove)

    def _checkpoint_watermarks(self) -> None:
        self._on_each_disk("high watermarks", partial(self._write, self._logs.checkpoints.write_high_watermarks))

    def _checkpoint_recovery_points(self) -> None:
        self._on_each_disk("recovery points", partial(self._write, self._logs.checkpoints.write_recovery_points))

    def _on_each_disk(self, name: str, run: Callable[[LogDir], Coroutine[object, Never, None]]) -> None:
        """Runs the task for each log directory beside the others, so that a disk that hangs stops its own only.

        While the one before runs no other starts.
        """
        for directory in self._logs.directories:
            if directory.online and (name, directory.path) not in self._running:
                self._running.add((name, directory.path))
                self._world.spawn(self._run_on(name, directory, run), f"{name} of {directory.path}")

    async def _run_on(
        self, name: str, directory: LogDir, run: Callable[[LogDir], Coroutine[object, Never, None]]
    ) -> None:
        try:
            await run(directory)
        except StorageFailure as failure:
            log.error("%s of %s: %s", name, directory.path, failure)
        except Exception:  # the task runs again after its interval, as one that fails on the loop
            log.exception("%s of %s failed", name, directory.path)
        finally:
            self._running.discard((name, directory.path))
            self._check_directories()

    async def _write(self, write: Callable[[LogDir], object], directory: LogDir) -> None:
        """Two fsyncs of a busy disk took 129 ms with 10,000 partitions."""
        await self._world.workers.on_disk(directory.path, Priority.CHECKPOINT, write, directory)

    async def _retain_in(self, directory: LogDir) -> None:
        work = retaining(self._logs, directory, self._clock_jumps.expiry_ms())
        workers = self._world.workers

        def run(job: DiskJob) -> Awaitable[object]:
            return workers.on_disk(job.directory, Priority.RETENTION, job.run)

        for changed in await run_in_turns(self._world.clock, work, do=run):
            partition = self._replicas.get(changed.topic, changed.partition)
            if partition is not None and partition.log is changed:
                partition.watchers.fire()  # a Fetch response contains the log start offset

    def _flush(self) -> None:
        for due in self._logs.flush_due(self._world.clock.wall_ms()):
            if id(due) not in self._flushing:
                self._flushing.add(id(due))
                self._world.spawn(self._flush_one(due), f"flush {due.topic}-{due.partition}")

    async def _flush_one(self, due: Log) -> None:
        try:
            await flush_log(self._world, due, Priority.FLUSH)
        except StorageFailure as failure:
            log.error("flush of %s: %s", due, failure)
        finally:
            self._flushing.discard(id(due))
            self._check_directories()

    def _expire_producers(self) -> None:
        now_ms = self._clock_jumps.expiry_ms()
        for some_log in self._logs.open:
            some_log.producers.remove_expired(now_ms, some_log.config.producer_id_expiration_ms)
