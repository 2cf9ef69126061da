"""The scheduled tasks of a broker: retention, removal, checkpoints, flushes, expiration of producers.

Each scheduled task is a row: its interval and its function. What waits for the disk runs on a worker thread; what touches the
logs' own state runs on the loop, because a log has one writer. A task that fails runs again after its interval: the storage
layer itself takes a failed directory offline.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from ottla.broker.configs import BrokerConfigs
from ottla.broker.full_disks import LOOK_MS, FullDisks
from ottla.broker.replication.group_flush import flush_log
from ottla.broker.replication.replicas import Replicas
from ottla.server.clock import TimerHandle
from ottla.server.world import World
from ottla.storage.errors import StorageFailure
from ottla.storage.log import Log
from ottla.storage.logs import Logs

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


class ScheduledTasks:
    """Starts, repeats and stops the scheduled tasks of a broker."""

    def __init__(
        self,
        world: World,
        configs: BrokerConfigs,
        logs: Logs,
        replicas: Replicas,
        check_directories: Callable[[], None],
    ) -> None:
        self._world = world
        self._logs = logs
        self._replicas = replicas
        self._check_directories = check_directories
        self.full_disks = FullDisks(world.clock, world.files, logs)
        self._flushing: set[int] = set()
        self._writing: set[str] = set()  # checkpoints under way
        self._stopped = False
        self._tasks = [
            ScheduledTask("retention", configs["log.retention.check.interval.ms"], self._retain),
            ScheduledTask("removal", configs["log.retention.check.interval.ms"], replicas.log_removal.remove),
            ScheduledTask(
                "high watermarks", configs["replica.high.watermark.checkpoint.interval.ms"], self._checkpoint_watermarks
            ),
            ScheduledTask(
                "recovery points", configs["log.flush.offset.checkpoint.interval.ms"], self._checkpoint_recovery_points
            ),
            ScheduledTask("log directories", CHECK_DIRECTORIES_MS, check_directories),
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
            task.handle = self._world.clock.call_later(max(1, task.interval_ms), lambda: self._turn(task))

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
        if self._logs.apply_retention(self._world.clock.wall_ms()):
            for partition in self._replicas:
                # A Fetch response contains the log start offset.
                partition.wake_fetches()

    def _checkpoint_watermarks(self) -> None:
        self._write("high watermarks", self._logs.write_high_watermarks)

    def _checkpoint_recovery_points(self) -> None:
        self._write("recovery points", self._logs.write_recovery_points)

    def _write(self, name: str, write: Callable[[], None]) -> None:
        """Write the checkpoints on a worker: two fsyncs of a busy disk took 129 ms with 10,000 partitions. While one write runs no other starts."""
        if name not in self._writing:
            self._writing.add(name)
            self._world.spawn(self._write_one(name, write), f"checkpoint {name}")

    async def _write_one(self, name: str, write: Callable[[], None]) -> None:
        try:
            await self._world.workers.run(write)
        except StorageFailure as failure:
            log.error("%s: %s", name, failure)
        finally:
            self._writing.discard(name)
            self._check_directories()

    def _flush(self) -> None:
        for due in self._logs.flush_due(self._world.clock.wall_ms()):
            if id(due) not in self._flushing:
                self._flushing.add(id(due))
                self._world.spawn(self._flush_one(due), f"flush {due.topic}-{due.partition}")

    async def _flush_one(self, due: Log) -> None:
        try:
            await flush_log(self._world, due)
        except StorageFailure as failure:
            log.error("flush of %s: %s", due, failure)
        finally:
            self._flushing.discard(id(due))
            self._check_directories()

    def _expire_producers(self) -> None:
        now_ms = self._world.clock.wall_ms()
        for some_log in self._logs:
            some_log.producers.remove_expired(now_ms, some_log.config.producer_id_expiration_ms)
