"""The scheduled tasks of a broker: retention, removal, checkpoints, flushes, expiration of producers, a look at full disks and the clock.

Each scheduled task is a row: its interval and its function. Work that waits for a disk runs on a thread of that disk; work on
the logs' own state runs on the loop, because a log has one writer. A task that fails runs again after its interval: the storage
layer itself takes a failed directory offline.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Never

from ottla.broker.configs import BrokerConfigs
from ottla.broker.replication.disk_work import flush_log
from ottla.broker.replication.replicas import Replicas
from ottla.protocol.work import DiskJob
from ottla.server.clock import Clock, TimerHandle, run_in_turns
from ottla.server.metrics import GAUGE, Family, Sample, gauge
from ottla.server.workers import Priority
from ottla.server.world import World
from ottla.storage.directories.log_dirs import LogDir
from ottla.storage.directories.logs import Logs
from ottla.storage.directories.open_logs import OpenLogs, retaining
from ottla.storage.errors import DiskFull, StorageFailure
from ottla.storage.files import Files
from ottla.storage.log.log import Log

CLOCK_LOOK_MS = 1_000
JUMP_MS = 60_000
HOLD = "ottla.clock.jump.hold.ms"


class ClockJumps:
    """Watches the wall clock of a node for jumps against the monotonic one. Deletion by age uses `expiry_ms`, which ignores a
    jump ahead until it is confirmed.

    Retention by time compares the timestamps of records with the wall clock: one that an operator or a virtual machine's host sets ten
    days ahead deletes ten days of records at the next check, in Kafka too. Both clocks go on equally unless the wall clock is set, so
    that their difference shows a jump, and how large it is.

        jump         the difference has changed by more than a minute since the last look
        held         after a jump ahead `expiry_ms` goes on as if there was none; after a jump back it is the wall-clock time
        confirmed    the clock has stayed so for ottla.clock.jump.hold.ms (an hour), or the node was restarted
        withdrawn    the clock has come back

    A time server's corrections are slower than a minute a look, and are followed. A machine that was suspended looks as if its clock
    had jumped ahead: retention is an hour late then.
    """

    def __init__(self, clock: Clock, hold_ms: int) -> None:
        self._clock = clock
        self._hold_ms = hold_ms
        #: Wall-clock time minus monotonic time: as it was at the last look, and as `expiry_ms` has it.
        self._seen_ms = self._trusted_ms = self._difference_ms()
        self._jumped_ms: int | None = None

    def _difference_ms(self) -> int:
        return self._clock.wall_ms() - self._clock.mono_ms()

    def expiry_ms(self) -> int:
        """Return the wall-clock time in milliseconds, without a jump ahead that is not confirmed."""
        self.look()
        return self._clock.mono_ms() + min(self._seen_ms, self._trusted_ms)

    def look(self) -> None:
        """A scheduled task that notices a jump, and later that it is confirmed or withdrawn."""
        now_ms, difference_ms = self._clock.mono_ms(), self._difference_ms()
        jump_ms = difference_ms - self._seen_ms
        self._seen_ms = difference_ms
        if abs(jump_ms) > JUMP_MS:
            self._jumped_ms = now_ms
            log.warning(
                "The wall clock jumped by %+d s against the monotonic clock: retention and expirations do not go by it"
                " until it has stayed so for %d s, has come back, or the node is restarted",
                round(jump_ms / 1_000),  # the two clocks are read one after the other
                self._hold_ms // 1_000,
            )
        if self._jumped_ms is not None:
            if abs(difference_ms - self._trusted_ms) <= JUMP_MS:
                log.info("The wall clock has come back: retention and expirations go by it again")
            elif now_ms - self._jumped_ms >= self._hold_ms:
                log.warning("The wall clock is taken for right: retention and expirations go by it again")
            else:
                return
        self._trusted_ms, self._jumped_ms = difference_ms, None

    def metrics(self) -> Iterator[Family]:
        held_ms = 0 if self._jumped_ms is None else self._seen_ms - self._trusted_ms
        yield gauge("ottla_wall_clock_jump_ms", "The jump of the wall clock that is not confirmed yet", held_ms)


#: The interval of looking for appends that failed: 10,000 logs take a millisecond.
LOOK_MS = 2_000
REPEAT_MS = 60_000
#: With this many bytes free the next append most likely succeeds, unless the last one has failed because of a quota of the file
#: system.
ROOM_BYTES = 1 << 20


class FullDisks:
    """The log directories of a broker that refuse appends for lack of room, as operators see them: an ERROR each minute, a readiness check
    that fails, and the free bytes of each log directory.

    Nothing else shows it: a full disk is no failed disk, what is written stays readable, and each client is only answered
    KAFKA_STORAGE_ERROR. A directory counts as full while an append to one of its logs has failed for lack of room, and as one that
    has room again when such an append succeeds, or when `ROOM_BYTES` are free: producers may have gone elsewhere meanwhile.
    """

    def __init__(self, clock: Clock, files: Files, logs: OpenLogs) -> None:
        self._clock = clock
        self._files = files
        self._logs = logs
        #: The problem of each log directory, by its path, in words for operators.
        self.full: dict[str, str] = {}
        self._written_ms: dict[str, int] = {}

    def look(self) -> None:
        """A scheduled task: finds full directories, and writes a line for each, once a minute."""
        now_ms = self._clock.mono_ms()
        for directory in self._logs.directories:
            text = self._refusal(directory) if directory.online else None
            if text is None:
                if self.full.pop(directory.path, None) is not None:
                    del self._written_ms[directory.path]
                    log.info("Log directory %s has room again", directory.path)
                continue
            self.full[directory.path] = text
            written_ms = self._written_ms.get(directory.path)
            if written_ms is None or now_ms - written_ms >= REPEAT_MS:
                self._written_ms[directory.path] = now_ms
                log.error("%s", text)

    def metrics(self) -> Iterator[Family]:
        samples = []
        for directory in self._logs.directories:
            free = self._free(directory) if directory.online else None
            if free is not None:
                samples.append(Sample({"logdirectory": directory.path}, free))
        yield Family("ottla_log_directory_free_bytes", GAUGE, "Free bytes of the volume of each log directory", samples)

    def _refusal(self, directory: LogDir) -> str | None:
        refused = [each for each in self._logs.in_directory(directory) if type(each.room.append_failure) is DiskFull]
        free = self._free(directory) if refused else None
        if free is None or (free >= ROOM_BYTES and not any(map(_is_over_quota, refused))):
            return None
        names = f"{refused[0].topic}-{refused[0].partition}"
        if len(refused) > 1:
            names += f" and {len(refused) - 1} more partitions"
        return f"Cannot append to {names}: no space left in {directory.path} ({free} bytes free)"

    def _free(self, directory: LogDir) -> int | None:
        try:
            return self._files.usable_bytes(directory.path)[1]
        except StorageFailure:
            return None


def _is_over_quota(refused: Log) -> bool:
    failure = refused.room.append_failure
    return failure is not None and isinstance(failure.cause, OSError) and failure.cause.errno == errno.EDQUOT


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
    """Return how often deleted files are removed: the room of a topic comes back soon after its time, not with the next run of retention."""
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
        removal.rename()  # repeat the renames that a full disk has rejected
        self._on_each_disk("removal", removal.remove)

    def _checkpoint_watermarks(self) -> None:
        self._on_each_disk("high watermarks", partial(self._write, self._logs.checkpoints.write_high_watermarks))

    def _checkpoint_recovery_points(self) -> None:
        self._on_each_disk("recovery points", partial(self._write, self._logs.checkpoints.write_recovery_points))

    def _on_each_disk(self, name: str, run: Callable[[LogDir], Coroutine[object, Never, None]]) -> None:
        """Run the task for each log directory beside the others, so that a disk that hangs stops its own task only.

        While a task runs for a log directory, it is not started there again.
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
        work = retaining(self._logs.open, directory, self._clock_jumps.expiry_ms())
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
