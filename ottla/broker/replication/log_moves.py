"""Moves of replicas between this node's log directories (AlterReplicaLogDirs, KIP-113): the task of each, until it has replaced the log.

    copies      a slice of a turn, then a rest, under replica.alter.log.dirs.io.max.bytes.per.second (storage/directories/future_logs.py)
    asks        caught up: AssignReplicasToDirs, so that the controller knows the directory before the replica is there (KIP-858)
    replaces    the metadata names the new directory: the last batches are copied and the log is replaced in one turn of the loop

No append can come between the last copy and the replacement, because there is no await. A move ends early if the operator names
the current directory or another one, if its partition is removed, if the disk is full or the log damaged (the copy is deleted),
or if one of the two directories fails. After a restart a future log that was found goes on (`resume`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from ottla.broker.configs import BrokerConfigs
from ottla.broker.replication.disk_work import LogRemoval, flush_log
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.throttle import Throttle
from ottla.broker.replication.to_controller import DirectoryAssignments, knows_directories
from ottla.controller.metadata.image import MetadataImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.clock import pause
from ottla.server.quotas.rate import Windows
from ottla.server.workers import Priority
from ottla.server.world import World
from ottla.storage.directories import future_logs
from ottla.storage.directories.log_dirs import LogDir
from ottla.storage.directories.logs import Logs
from ottla.storage.errors import DiskFull, StorageFailure
from ottla.storage.log.log import Log

log = logging.getLogger(__name__)

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
#: A slice of a turn of the event loop: it ends after this time or these bytes. After it the loop has the same time for other
#: work.
SLICE_NS = 2_000_000
SLICE_BYTES = 1 << 20
PIECE_BYTES = 128 << 10
#: The interval of reading the rate again while a move waits for it: an operator may have raised it.
LOOK_AT_RATE_MS = 500
#: The report is sent again: it may have changed nothing (seed 188: its response came, and the directory stayed as it was).
LOOK_AT_METADATA_MS = 500
#: The bytes that are read from the disk on a worker at once, and those that are written before it is synced on a worker.
READ_AHEAD_BYTES = 8 << 20
FLUSH_BYTES = 64 << 20
#: Flushes on a worker before the one on the event loop: with flush.messages=1 a busy log is always a few records further on.
FLUSHES_BESIDE_APPENDS = 3

Key = tuple[bytes, int]
#: The event for which a move waits before its next step.
Wait: TypeAlias = Callable[[], Awaitable[object]]


@dataclass(slots=True, eq=False)
class Move:
    """A future log that is copied, and the partition whose log it is to replace."""

    partition: Partition
    future: Log
    target: LogDir
    #: Set when the metadata of the partition has changed, and when the move has ended.
    news: asyncio.Event = field(default_factory=asyncio.Event)
    asked: bool = False
    #: The value of the current log's `Durability.truncations` when the future log was last made to agree with it.
    aligned: int = -1
    disk_job_done: bool = False
    read_ahead_to: int = 0
    start_written: int = -1
    flushes: int = 0

    @property
    def key(self) -> Key:
        return self.partition.topic_id, self.partition.index


class LogMoves:
    """The moves of one node. They take turns in copying."""

    def __init__(
        self,
        world: World,
        configs: BrokerConfigs,
        logs: Logs,
        log_removal: LogRemoval,
        assignments: DirectoryAssignments,
        image: Callable[[], MetadataImage],
    ) -> None:
        self._world = world
        self._configs = configs
        self._logs = logs
        self._log_removal = log_removal
        self._assignments = assignments
        self._image = image
        windows = Windows(
            configs["alter.log.dirs.replication.quota.window.num"],
            configs["alter.log.dirs.replication.quota.window.size.seconds"] * 1_000,
        )
        self._throttle = Throttle(world.clock, windows)
        self._slice = asyncio.Lock()
        self._moves: dict[Key, Move] = {}
        self._closed = False

    # -- Beginning and ending ----------------------------------------------------------------------------------------

    def start(self, partition: Partition, target: LogDir) -> None:
        """Move the replica to `target`; an earlier move elsewhere ends.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        future = self._logs.open.future(partition.topic_id, partition.index)
        if future is not None and self._logs.open.directory_of(future) is not target:
            self.cancel(partition)
            future = None
        current = partition.log
        if current is None or partition.offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition} is offline")
        if self._logs.open.directory_of(current) is target:
            return
        if future is None:
            if self._logs.open.offline_directories:
                # Refused, as in Kafka: one of the directories may have a future log already.
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "a log directory is offline")
            try:
                future = self._logs.futures.create(current, target, self._world.clock.wall_ms())
            except StorageFailure as failure:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure)) from failure
        self._begin(partition, future)

    def resume(self, partition: Partition) -> None:
        """The partition's metadata has changed, or a future log was found at the start."""
        future = self._logs.open.future(partition.topic_id, partition.index)
        if future is not None and not partition.offline:
            self._begin(partition, future)

    def _begin(self, partition: Partition, future: Log) -> None:
        key = (partition.topic_id, partition.index)
        if (running := self._moves.get(key)) is not None:
            running.news.set()
        elif not self._closed:
            move = self._moves[key] = Move(partition, future, self._logs.open.directory_of(future))
            log.info("Moving %s to %s", partition, move.target.path)
            self._world.spawn(self._run(move), f"move {partition}")

    def cancel(self, partition: Partition) -> None:
        """End the move of this partition, if there is one, and delete the copy."""
        if (move := self._moves.get((partition.topic_id, partition.index))) is not None:
            self._end(move)
        if (future := self._logs.open.future(partition.topic_id, partition.index)) is not None:
            log.info("The move of %s to %s has ended", partition, self._logs.open.directory_of(future).path)
            self._logs.futures.drop(future, self._world.clock.wall_ms())
            self._log_removal.rename()

    def directory_failed(self, directory: LogDir) -> None:
        """End the moves from and to this directory; the files of a copy stay as they are."""
        for move in list(self._moves.values()):
            current = move.partition.log
            if move.target is directory:
                self._end(move)
                self._logs.open.take_out(move.future)  # the next start finds the copy, if its directory is there
            elif current is None or self._logs.open.directory_of(current) is directory:
                self._end(move)

    def close(self) -> None:
        """The node is stopping: nothing is copied or replaced any more. The next start goes on."""
        self._closed = True
        for move in list(self._moves.values()):
            self._end(move)

    def expects(self, partition: Partition, directory_id: bytes) -> bool:
        """Return True if the metadata may name this directory already, because a move there is about to end."""
        move = self._moves.get((partition.topic_id, partition.index))
        return move is not None and move.asked and move.target.directory_id == directory_id

    def _end(self, move: Move) -> None:
        del self._moves[move.key]
        move.news.set()
        current = move.partition.log
        if move.asked and current is not None:
            # The controller may know the new directory already: a failure of the present one would not be noticed.
            self._assignments.assign(*move.key, self._logs.open.directory_of(current).directory_id)

    # -- Copying -----------------------------------------------------------------------------------------------------

    async def _run(self, move: Move) -> None:
        try:
            while self._moves.get(move.key) is move:
                async with self._slice:
                    if self._moves.get(move.key) is not move:
                        return
                    began_ns = self._world.clock.mono_ns()
                    wait = self._step(move)
                    await pause(self._world.clock, (self._world.clock.mono_ns() - began_ns) / 1e6)
                if wait is not None:
                    await wait()
        except (KafkaError, StorageFailure) as failure:
            log.error("%s was not moved to %s: %s", move.partition, move.target.path, failure)
            self._failed(move)
        except Exception:
            log.exception("%s was not moved to %s", move.partition, move.target.path)
            self._failed(move)

    def _failed(self, move: Move) -> None:
        """Delete the copy, unless a directory has failed: then `directory_failed` ends the move."""
        current = move.partition.log
        if self._moves.get(move.key) is not move or current is None:
            return
        if move.target.online and self._logs.open.directory_of(current).online:
            self.cancel(move.partition)

    def _step(self, move: Move) -> Wait | None:
        """Copy a slice; if there is nothing left to copy, ask the controller, or replace the log. Nothing else runs meanwhile."""
        current, future, now_ms = move.partition.log, move.future, self._world.clock.wall_ms()
        assert current is not None
        if current.partition_dir.exists and not current.recovery_point and current.log_end_offset:
            # The log has never been flushed: a power loss could take it, its log start with it, and leave the copy.
            return partial(flush_log, self._world, current)
        if move.aligned != current.durability.truncations:
            future_logs.align(current, future)
            move.aligned = current.durability.truncations
        future_logs.follow_start(current, future, now_ms)
        if gone := future.partition_dir.take_deleted():
            return self._on_disk(move.target.path, Priority.REMOVAL, partial(self._remove, gone))
        if move.read_ahead_to <= future.log_end_offset < current.log_end_offset:
            ahead = future_logs.read_ahead(current, future.log_end_offset, READ_AHEAD_BYTES)
            move.read_ahead_to = future.log_end_offset + 1 if ahead is None else ahead.to_offset
            if ahead is not None:
                return self._on_disk(current.partition_dir.log_dir, Priority.READ, ahead.read)
        copied, until_ns, bytes_max = 0, self._world.clock.mono_ns() + SLICE_NS, min(SLICE_BYTES, self._configs[RATE])
        while copied < bytes_max and self._world.clock.mono_ns() < until_ns:
            size = min(PIECE_BYTES, bytes_max)
            some = future_logs.copy_some(current, future, size, now_ms, disk_job_done=move.disk_job_done)
            move.disk_job_done = False
            if not isinstance(some, int):
                move.disk_job_done = True
                return self._on_disk(some.directory, Priority.ROLL, some.run)
            if not some:
                return self._caught_up(move, current, now_ms)
            copied += some
            self._throttle.record(some)
        return partial(self._rest, move)

    async def _rest(self, move: Move) -> None:
        if move.future.durability.unflushed_bytes >= FLUSH_BYTES:
            await flush_log(self._world, move.future, Priority.FLUSH)
        while self._moves.get(move.key) is move:
            self._throttle.bytes_per_second = self._configs[RATE]
            pause_ms = self._throttle.pause_ms()
            if not pause_ms:
                break
            await pause(self._world.clock, min(pause_ms, LOOK_AT_RATE_MS))

    def _caught_up(self, move: Move, current: Log, now_ms: int) -> Wait | None:
        future = move.future
        if not self._is_settled(move, current):
            if move.flushes < FLUSHES_BESIDE_APPENDS:
                move.flushes += 1
                return partial(self._settle, move)
            current.flush(now_ms)
            future.flush(now_ms)
            if not self._is_settled(move, current):
                move.flushes = 0
                return partial(self._settle, move)
        if not self._is_accepted(move):
            self._ask(move)
            move.news.clear()
            return partial(self._news, move)
        self._logs.futures.replace(current, future, now_ms)
        del self._moves[move.key]
        move.partition.log_replaced(future)
        self._log_removal.rename()
        log.info("%s has moved to %s", move.partition, move.target.path)
        return None

    async def _news(self, move: Move) -> None:
        """Wait for a change of the metadata, but not without end: a directory that is registered already gives none."""
        timer = self._world.clock.call_later(LOOK_AT_METADATA_MS, move.news.set)
        await move.news.wait()
        timer.cancel()

    def _is_settled(self, move: Move, current: Log) -> bool:
        """Return True if a crash right after the replacement would lose nothing that the current log would keep."""
        return (
            move.future.log_start_offset == move.start_written
            and future_logs.is_flushed(current, move.future)
            and self._logs.futures.names_free(move.future)
        )

    async def _settle(self, move: Move) -> None:
        start = move.future.log_start_offset
        if (current := move.partition.log) is not None and current.config.flush_messages == future_logs.EVERY_RECORD:
            await flush_log(self._world, current)
        await flush_log(self._world, move.future)
        await self._world.workers.on_disk(move.target.path, Priority.FLUSH, self._sync, move)
        move.start_written = start

    def _sync(self, move: Move) -> None:
        if self._logs.checkpoints.write_log_starts(move.target):
            raise DiskFull(move.target.path, "the log start offset could not be written")
        self._logs.rename_deleted(move.target)

    def _is_accepted(self, move: Move) -> bool:
        image = self._image()
        if not knows_directories(image):
            return True
        registration = image.topics.partition(*move.key)
        return (
            registration is not None
            and registration.directory(move.partition.node_id) == move.target.directory_id
            and move.asked
        )

    def _ask(self, move: Move) -> None:
        move.asked = True
        self._assignments.assign(*move.key, move.target.directory_id)

    def _on_disk(self, directory: str, priority: Priority, function: Callable[[], object]) -> Wait:
        return partial(self._world.workers.on_disk, directory, priority, function)

    def _remove(self, paths: list[str]) -> None:
        for path in paths:
            self._world.files.remove(path)
