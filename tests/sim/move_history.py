"""Seeded histories of one partition whose log moves between two directories of a simulated disk, with crashes at any call.

The real `LogMoves`, `Partition` and `Logs` do the work. The model is a list of batches; after every operation the log that the
partition has must have them, in whichever directory it is, and after a crash what was promised of them:

    kill     every batch
    power    every batch that was on the disk (`Log.recovery_point`), and a log start that was written
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from ottla.broker.configs import BrokerConfigs
from ottla.broker.replication.disk_work import GroupFlush, LogRemoval, flush_log
from ottla.broker.replication.log_moves import RATE, LogMoves
from ottla.broker.replication.wakeups import Wakeups
from ottla.controller.metadata.image import EMPTY
from ottla.protocol.errors import KafkaError
from ottla.protocol.records.builder import build_batch
from ottla.server.config.node_config import NodeConfig
from ottla.storage.directories.log_dirs import MetaProperties, open_log_dirs, write_meta_properties
from ottla.storage.directories.logs import Logs
from ottla.storage.errors import StorageFailure
from ottla.storage.log.log import Log
from ottla.storage.log.partition_dir import DELETE, FUTURE, STRAY
from ottla.storage.log.retention import delete_records
from ottla.storage.log_config import NEVER, LogConfig
from tests.broker.replication.made_partition import made_partition
from tests.sim.cluster import properties_of
from tests.sim.disk import CAPACITY_BYTES, Killed
from tests.sim.network import SimHub
from tests.sim.world import SimHost
from tests.storage.chores import retain, to_rename

DIRECTORIES = ("/a", "/b")
TOPIC, TOPIC_ID, PRODUCER_ID = "t", bytes(range(16)), 7
MOVE_SECONDS_MAX = 60

OPERATIONS = (
    ("append", 50),
    ("elect", 4),
    ("truncate", 8),
    ("delete_records", 5),
    ("retain", 4),
    ("flush", 8),
    ("roll", 4),
    ("retry", 6),
    ("move", 10),
    ("cancel", 3),
    ("wait", 30),
)


class Batch(NamedTuple):
    offset: int
    epoch: int
    sequence: int
    fill: int


@dataclass
class Promise:
    """Return the smallest set of records that a power loss leaves."""

    flushed: int = 0
    start: int = 0


class MovingNode:
    """A node with two directories and one partition. `host.disk` has the faults."""

    def __init__(self, seed: int, config: LogConfig | None = None, *, rate: int = NEVER) -> None:
        self.rng = random.Random(seed)
        self.host = SimHost("n1", SimHub(random.Random(seed)), random.Random(seed + 1))
        self.host.turn_ms = 0.3
        self.config = config or LogConfig(segment_bytes=3000, index_interval_bytes=200, file_delete_delay_ms=0)
        settings = {"log.dirs": ",".join(DIRECTORIES)}
        self.configs = BrokerConfigs(NodeConfig(properties_of(1, {1: "broker,controller"}, settings)))
        self.limit(rate)
        self.batches: list[Batch] = []
        self.epochs: list[tuple[int, int]] = []
        self.promise = Promise()
        #: The operation in which the process may die: it may have taken effect or not.
        self.in_flight: list[Batch] = []
        self.truncating_to = NEVER
        self.epoch = 0
        self.switches = 0
        disk = self.host.disk
        for number, path in enumerate(DIRECTORIES):
            disk.make_dirs(path)
            write_meta_properties(disk, path, MetaProperties("cluster", 1, bytes([number + 1]) * 16))
        disk.sync_dir("/")
        self.boot()

    def limit(self, bytes_per_second: int) -> None:
        self.configs.node.set_dynamic({RATE: str(bytes_per_second)}, {})

    # -- Lives -------------------------------------------------------------------------------------------------------

    def boot(self) -> None:
        self.world = world = self.host.boot()
        directories = open_log_dirs(world.files, DIRECTORIES, "cluster", 1)
        self.logs = Logs(world.files, directories, random.Random(self.rng.getrandbits(32)))
        self.logs.open_all(lambda topic, topic_id: self.config, world.clock.wall_ms())
        log = self.logs.create(TOPIC, 0, TOPIC_ID, self.config, now_ms=world.clock.wall_ms())
        self.partition = made_partition(1, TOPIC, 0, TOPIC_ID, Wakeups(world.clock), GroupFlush(world), 30_000)
        removal = LogRemoval(world, self.logs)
        removal.rename()
        self.moves = LogMoves(world, self.configs, self.logs, removal, None, lambda: EMPTY)
        self._lead(log)
        self.moves.resume(self.partition)
        self.seen = log

    def _lead(self, log: Log) -> None:
        self.epoch += 1
        self.partition.become_leader(log, self.epoch, self.epoch, (1,), (1,), self.world.clock.mono_ms())
        self.epochs = list(log.epochs.entries)

    async def crash(self, *, power: bool) -> None:
        """The process ends, perhaps in the middle of an operation, and the next process starts."""
        await self.host.crash(power)
        self.host.disk.room_bytes = CAPACITY_BYTES
        self.boot()
        end, written = self.log.log_end_offset, [*self.batches, *self.in_flight]
        lowest = self.promise.flushed if power else self.end
        assert end >= min(lowest, self.truncating_to), f"{self.log} lost batches up to {lowest}"
        if self.promise.flushed:  # otherwise not even the directory's name was on the disk
            assert self.log.log_start_offset >= min(self.promise.start, end), f"{self.log} has deleted records again"
        self.batches = [batch for batch in written if batch.offset < end]
        self._settled()
        self.promise = Promise(min(self.promise.flushed, end), min(self.promise.start, end))
        self.check()

    async def stop(self) -> None:
        self.moves.close()
        await asyncio.sleep(0.05)  # what runs on a worker ends
        self.logs.close_all()
        await self.crash(power=self.rng.random() < 0.5)

    def repair(self) -> None:
        self.host.disk.disarm()
        self.host.disk.room_bytes = CAPACITY_BYTES

    def _settled(self) -> None:
        self.in_flight, self.truncating_to = [], NEVER

    # -- What must hold ----------------------------------------------------------------------------------------------

    @property
    def log(self) -> Log:
        assert self.partition.log is not None
        return self.partition.log

    @property
    def directory(self) -> str:
        return self.log.directory.split("/")[1]

    @property
    def end(self) -> int:
        return self.batches[-1].offset + 1 if self.batches else 0

    def _index_of(self, offset: int) -> int:
        return next((i for i, batch in enumerate(self.batches) if batch.offset >= offset), len(self.batches))

    def look(self) -> None:
        """Check the log after another task ran: a replacement must have no visible effect."""
        log = self.log
        if log is not self.seen:
            self.switches += 1
            self.seen = log
            self.check()
        start = log.log_start_offset
        epochs = [entry for entry in log.epochs.entries if entry[1] > start]
        assert epochs == [entry for entry in self.epochs if entry[1] > start], f"epochs of {log}: {log.epochs.entries}"
        self.promise.flushed = max(self.promise.flushed, min(log.recovery_point, log.log_end_offset))

    def check(self) -> None:
        log = self.log
        kept = [batch for batch in self.batches if batch.offset >= log.log_start_offset]
        found = [
            Batch(
                view.base_offset, view.partition_leader_epoch, view.base_sequence,
                (view.records()[0].value or b"\xff")[0],
            )
            for view in log.batches(log.log_start_offset)
        ]  # fmt: skip
        assert found == kept, f"{log} in {log.directory}"
        assert log.log_end_offset >= self.end

    def future_directories(self) -> list[str]:
        return [name for path in DIRECTORIES for name in self.host.disk.list_dir(path) if name.endswith(FUTURE)]

    async def finished(self) -> None:
        """Wait for the end of the move, and for the removal of the replaced log."""
        for _ in range(MOVE_SECONDS_MAX * 20):
            if self.logs.open.future(TOPIC_ID, 0) is None and not to_rename(self.logs):
                break
            await asyncio.sleep(0.05)
        else:
            raise AssertionError(f"{self.partition} still moves: {self.logs.open.futures()} of {self.log}")
        self.look()
        assert not self.future_directories()
        named = [
            f"{path}/{name}"
            for path in DIRECTORIES
            for name in self.host.disk.list_dir(path)
            if name.startswith(TOPIC) and not name.endswith((DELETE, STRAY))
        ]
        assert named in ([], [self.log.directory]), named

    # -- Operations --------------------------------------------------------------------------------------------------

    async def do(self, name: str) -> None:
        """Run one operation; the model takes its change before anything else runs."""
        if self.host.disk.killed:
            raise Killed
        self.look()
        try:
            await getattr(self, f"_{name}")()
        except StorageFailure:
            assert self.host.disk.room_bytes < CAPACITY_BYTES, "nothing else fails here"
        self._settled()
        self.epochs = list(self.log.epochs.entries)

    async def _append(self) -> None:
        for _ in range(self.rng.randrange(1, 6)):
            sequence = self.batches[-1].sequence + 1 if self.batches else 0
            fill, size = self.rng.randrange(256), self.rng.choice((10, 100, 700))
            records = self._build(sequence, fill, size)
            batch = Batch(self.log.log_end_offset, self.epoch, sequence, fill)
            self.in_flight = [batch]
            self.partition.append(records, 1, self.world.clock.wall_ms())
            self.in_flight = []
            self.batches.append(batch)

    def _build(self, sequence: int, fill: int, size: int) -> bytes:
        value, now_ms = bytes([fill]) * size, self.world.clock.wall_ms()
        return build_batch([(b"k", value, now_ms)], producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=sequence)

    async def _retry(self) -> None:
        """A producer's retry of its last batch adds no second batch."""
        if self.batches and self.batches[-1].offset >= self.log.log_start_offset:
            last = self.batches[-1]
            appended = self.partition.append(self._build(last.sequence, last.fill, 10), 1, self.world.clock.wall_ms())
            assert appended.duplicate and appended.last_offset == last.offset, appended

    async def _elect(self) -> None:
        self._lead(self.log)

    async def _truncate(self) -> None:
        """Truncate the log, as the follower of a leader that does not have the last batches."""
        log = self.log
        offset = self.rng.randint(max(log.log_start_offset, log.log_end_offset - 8), log.log_end_offset)
        self.epoch += 1
        self.partition.become_follower(log, 2, self.epoch, self.epoch, (1, 2), (1, 2))
        self.promise.flushed = min(self.promise.flushed, offset)
        self.promise.start = min(self.promise.start, offset)
        self.truncating_to = offset
        try:
            self.partition.truncate_as_follower(offset)
            del self.batches[self._index_of(offset) :]
        finally:
            if not self.host.disk.killed:
                self._lead(log)

    async def _delete_records(self) -> None:
        log = self.log
        if log.high_watermark > log.log_start_offset:
            start = delete_records(log, self.rng.randint(log.log_start_offset, log.high_watermark))
            if not self.logs.checkpoints.write_log_starts():
                self.promise.start = max(self.promise.start, start)

    async def _retain(self) -> None:
        retain(self.logs, self.world.clock.wall_ms())

    async def _flush(self) -> None:
        await flush_log(self.world, self.log)

    async def _roll(self) -> None:
        if self.log.log_end_offset:
            self.log.roll(self.world.clock.wall_ms())

    async def _wait(self) -> None:
        await asyncio.sleep(self.rng.choice((0.001, 0.004, 0.02, 0.1)))
        self.look()

    async def _move(self) -> None:
        self.move_to(self.rng.choice(DIRECTORIES))

    async def _cancel(self) -> None:
        self.move_to(f"/{self.directory}")

    def move_to(self, path: str) -> None:
        try:
            self.moves.start(self.partition, next(d for d in self.logs.directories if d.path == path))
        except KafkaError:
            assert self.host.disk.room_bytes < CAPACITY_BYTES


async def run_history(seed: int) -> MovingNode:
    rng = random.Random(seed)
    config = LogConfig(
        segment_bytes=rng.choice((1500, 3000, 20_000)),
        index_interval_bytes=rng.choice((100, 4096)),
        retention_bytes=rng.choice((-1, 8000)),
        flush_messages=rng.choice((NEVER, NEVER, 1)),
        file_delete_delay_ms=0,
        producer_id_expiration_ms=NEVER,
    )
    node = MovingNode(seed, config)
    names, weights = zip(*OPERATIONS, strict=True)
    for _ in range(rng.randrange(3, 8)):
        for _ in range(rng.randrange(5, 60)):
            fault = rng.choices(("none", "kill", "full"), (85, 12, 3))[0]
            if fault == "kill":
                node.host.disk.kill_after(rng.randint(1, 30))
            elif fault == "full":
                node.host.disk.room_bytes = node.host.disk.used_bytes() + rng.choice((0, 500, 5000))
            with suppress(Killed):
                await node.do(rng.choices(names, weights)[0])
            if node.host.disk.killed:
                await node.crash(power=rng.random() < 0.6)
            elif rng.random() < 0.3:
                node.repair()
        node.repair()
        end = rng.choice(("kill", "power", "stop", "finish"))
        if end == "finish":
            await node.finished()
        elif end == "stop":
            await node.stop()
        else:
            await node.crash(power=end == "power")
    await node.finished()
    node.check()
    return node
