"""Seeded histories of one node's logs on the simulated disk: operations, faults in their middle, crashes, restarts.

A history is made by its seed alone. The real `Logs` does the work, `PartitionModel` says what must be left, and after every
restart all of it is looked at (`tests.sim.partition_checks`). `trace` is what happened, one line each.

    kill       the process ends between two calls to the disk, or in the middle of a copy; the page cache stays
    power      the same, and what was not synced is lost, torn or there (`tests.sim.inodes`)
    failure    one call fails with EIO; from then on the log directory must refuse writes
    full       no room; nothing may have changed, and when there is room everything goes on
    damage     after a clean stop, on a copy of the disk: see `tests.sim.media_damage`
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from ottla.storage.directories.log_dirs import MetaProperties, open_log_dirs, write_meta_properties
from ottla.storage.directories.logs import Logs
from ottla.storage.directories.open_logs import retaining
from ottla.storage.errors import DiskFull, StorageFailure
from ottla.storage.files import Mappings
from ottla.storage.log_config import NEVER, LogConfig
from tests.sim.disk import CAPACITY_BYTES, Killed, SimDisk
from tests.sim.inodes import POISON
from tests.sim.media_damage import DamagedNode, copy_of, damage, pick
from tests.sim.partition_checks import (
    check_batches,
    check_epochs,
    check_lookups,
    check_producers,
    check_recovered,
    facts,
)
from tests.sim.partition_model import PartitionModel
from tests.sim.partition_ops import Operations, Partition
from tests.storage.chores import remove_deleted, rename_deleted

DATA = "/data"
NODE_ID, CLUSTER_ID = 0, "sim-sim-sim-sim-sim-sim"
START_MS = 1_700_000_000_000

#: name, weight: how often each operation is chosen.
OPERATIONS = (
    ("append", 60),
    ("repeat", 8),
    ("refused", 3),
    ("elect", 3),
    ("roll", 4),
    ("flush", 10),
    ("flush_beside", 5),
    ("advance", 12),
    ("truncate", 4),
    ("truncate_fully", 1),
    ("retain", 4),
    ("delete_records", 4),
    ("compact", 4),
    ("outgrow", 1),
    ("snapshot", 3),
    ("write_recovery_points", 4),
    ("write_high_watermarks", 4),
    ("remove_deleted", 3),
    ("flush_due", 3),
    ("recreate", 1),
    ("hold", 6),
    ("let_go", 3),
    ("cut_beside", 3),
)
#: Operations that may happen while another thread is in the middle of a flush.
BESIDE = (
    "append",
    "append",
    "append",
    "roll",
    "truncate",
    "retain",
    "delete_records",
    "advance",
    "truncate_fully",
    "recreate",
)


class DiesInIt:
    """A replacement for the `struct.Struct` that stamps a batch."""

    size = 16

    def pack_into(self, *values: object) -> None:
        raise Killed


class StorageHistory:
    #: name, weight
    operations: tuple[tuple[str, int], ...] = OPERATIONS
    beside: tuple[str, ...] = BESIDE
    #: How many times as many lives a history has if its seed plays it after another history.
    longer = 4
    #: Events that may happen in the middle of an operation, and of a stop, and how often each does.
    faults: tuple[tuple[str, int], ...] = (("none", 80), ("kill", 8), ("failure", 3), ("full", 4))
    stop_faults: tuple[tuple[str, int], ...] = (("none", 70), ("kill", 10), ("failure", 10), ("full", 10))
    #: The share of lives that end with a stop, and the share of crashes that are a power loss.
    stops, power_losses = 0.35, 0.6
    #: How often a clean stop is followed by a start on a damaged copy of the disk.
    damages: tuple[int, ...] = (0, 1, 2)
    #: which partitions there may be
    names: tuple[tuple[str, ...], ...] = (("logs",), ("compacted",), ("logs", "mixed", "compacted"))

    def __init__(self, seed: int, lives: int = 6, steps: int = 30) -> None:
        self.seed, self.lives, self.steps = seed, lives, steps
        self.rng = rng = random.Random(seed)
        self.ops = Operations(rng, START_MS)
        self.disk = SimDisk(random.Random(rng.getrandbits(32)), lambda: self.ops.now_ms)
        self.config = self._config("delete")
        self.ops.large = self.config.segment_bytes >= 20_000
        self.fsync_first = rng.random() < 0.3  # flush.messages=1
        self.trace: list[str] = []
        self.restarts = 0
        self.partitions = [Partition(name, rng.randbytes(16)) for name in rng.choice(self.names)]
        self.policies = rng.choice((("compact",), ("compact", "delete")))
        self.compaction_lag_ms = rng.choice((0, 0, 15_000))
        self.leaving: Partition | None = None
        self.held: list[memoryview] = []  # answers that the network has not sent yet
        self.logs: Logs

    def _config(self, policy: str) -> LogConfig:
        rng = self.rng
        segment_bytes = rng.choice((2000, 3500, 8000, 20_000))
        return LogConfig(
            cleanup_policy=(policy,),
            segment_bytes=segment_bytes,
            index_interval_bytes=rng.choice((100, 400, 4096)),
            retention_bytes=rng.choice((-1, 3 * segment_bytes)),
            retention_ms=rng.choice((-1, 30_000)),
            segment_ms=rng.choice((10_000, 604_800_000)),
            file_delete_delay_ms=rng.choice((0, 20_000)),
            min_cleanable_dirty_ratio=0.0,
            delete_retention_ms=rng.choice((0, 20_000)),
            producer_id_expiration_ms=NEVER,
        )

    def config_for(self, topic: str, topic_id: bytes) -> LogConfig:
        if topic == "compacted":
            return LogConfig(
                cleanup_policy=self.policies,
                min_compaction_lag_ms=self.compaction_lag_ms,
                retention_bytes=self.config.retention_bytes,
                retention_ms=self.config.retention_ms,
                segment_bytes=min(self.config.segment_bytes, 3000) if not self.ops.large else 20_000,
                index_interval_bytes=200,
                min_cleanable_dirty_ratio=0.0,
                delete_retention_ms=self.config.delete_retention_ms,
                file_delete_delay_ms=self.config.file_delete_delay_ms,
                producer_id_expiration_ms=NEVER,
            )
        return self.config

    def note(self, line: str) -> None:
        self.trace.append(line)

    # Lives

    def run(self) -> None:
        self.disk.make_dirs(DATA)
        self.disk.sync_dir("/")
        write_meta_properties(self.disk, DATA, MetaProperties(CLUSTER_ID, NODE_ID, bytes(range(16))))
        self._boot(power=False, clean=True)
        for _ in range(self.lives):
            self._live()
            for partition in self.partitions:
                self._check(partition, exact=False)
        self.note("end")

    def _live(self) -> None:
        """Some operations, and one of the ways to end."""
        rng = self.rng
        for _ in range(rng.randrange(self.steps)):
            self.ops.now_ms += rng.choice((1, 20, 500, 9_000))
            if not self._step():
                return
        self._stop_or_crash()

    def _step(self) -> bool:
        """Run one operation, perhaps with a fault in its middle; return False if the node was restarted for it."""
        rng, disk = self.rng, self.disk
        partition = rng.choice(self.partitions)
        name = rng.choices(*zip(*self.operations, strict=True))[0]
        fault = rng.choices(*zip(*self.faults, strict=True))[0]
        self.note(f"{name} {partition.name} {fault if fault != 'none' else ''}")
        calls = rng.choice((12, 50, 200)) if name in ("compact", "outgrow") else 12
        if fault == "kill":
            disk.kill_after(rng.randint(1, calls))
        elif fault == "failure":
            disk.fail_after(rng.randint(1, calls))
        elif fault == "full":
            disk.room_bytes = disk.used_bytes() + rng.choice((0, 50, 500, 3000, 20_000))
        try:
            self._do(name, partition)
            if self.fsync_first and name == "append":
                self.ops.flush(partition)
        except Killed:
            self._crash()
            return False
        except DiskFull as failure:
            # A batch after one that a full disk refused fails with the same error, even if there is space again.
            assert fault == "full" or (partition.log is not None and partition.log.room.append_failure is not None), (
                failure
            )
            disk.room_bytes = CAPACITY_BYTES
            self._after_full(partition)
        except StorageFailure:
            pass
        disk.room_bytes = CAPACITY_BYTES
        disk.disarm()
        for other in self.partitions:
            if other.log is None and self.logs.directories[0].online:
                self._create(other)  # it was refused
        if not self.logs.directories[0].online:
            assert fault not in ("none", "full"), f"failed for no reason: {self.logs.directories[0].failure}"
            self._offline(partition)
            return False
        self._take_note_of_flushes()
        return True

    def _do(self, name: str, partition: Partition) -> None:
        own: dict[str, Callable[[], object]] = {
            "write_recovery_points": self._write_recovery_points,
            "write_high_watermarks": self.logs_now().checkpoints.write_high_watermarks,
            "remove_deleted": lambda: remove_deleted(self.logs, self.ops.now_ms),
            "flush_due": self._flush_due,
            "flush_beside": lambda: self._flush_beside(partition),
            "recreate": lambda: self._recreate(partition),
            "retain": self._retain,
            "cut_beside": lambda: self._cut_beside(partition),
            "hold": lambda: self._hold(partition),
            "let_go": self.held.clear,
            "delete_records": lambda: self.ops.delete_records(
                partition, self.logs, durable=self.disk.room_bytes == CAPACITY_BYTES
            ),
            "compact": lambda: self.ops.compact(partition, self.logs, lambda: self._meanwhile(partition, "a step")),
            "outgrow": lambda: self.ops.outgrow(partition, self.logs, lambda: self._recreate(partition)),
        }
        if name in own:
            own[name]()
        else:
            getattr(self.ops, name)(partition)

    def logs_now(self) -> Logs:
        return self.logs

    def _write_recovery_points(self) -> None:
        self.logs.checkpoints.write_recovery_points()
        if self.logs.directories[0].online and self.disk.room_bytes == CAPACITY_BYTES:
            for partition in self.partitions:
                partition.model.kept_start = partition.model.durable_start = partition.model.start

    def _retain(self) -> None:
        """Segments go by size or time. Which ones is retention's own business: never one above the high watermark.

        Their files are renamed by another thread, before which this one goes on with the log.
        """
        moved: set[str] = set()
        for directory in self.logs.directories:
            work = retaining(self.logs.open, directory, self.ops.now_ms)
            while True:
                for partition in self.partitions:
                    partition.model.start_ceiling = partition.model.high_watermark
                asked = next(work, None)
                moved |= self._settle_starts()
                if asked is None:
                    break
                if self.rng.random() < 0.3:
                    self._meanwhile(self.rng.choice(self.partitions), "a rename")
                asked()
        for partition in self.partitions:
            log, model = partition.log, partition.model
            whole = self.disk.room_bytes == CAPACITY_BYTES and log is not None and log.failure is None
            if partition.name in moved and whole:
                model.kept_start = model.durable_start = model.start

    def _settle_starts(self) -> set[str]:
        """Take over the log starts that retention has moved; return the names of their partitions."""
        moved: set[str] = set()
        for partition in self.partitions:
            log, model = partition.log, partition.model
            if log is None:
                continue
            assert model.start <= log.log_start_offset <= max(model.high_watermark, model.start)
            if model.start < log.log_start_offset:
                moved.add(partition.name)
            model.start = log.log_start_offset
            model.settle()
        return moved

    def _flush_due(self) -> None:
        for log in self.logs.flush_due(self.ops.now_ms):
            log.flush(self.ops.now_ms)

    def _flush_beside(self, partition: Partition) -> None:
        """Flush on another thread, while this one goes on with the log."""
        busy = False

        def meanwhile(kind: str, path: str) -> None:
            nonlocal busy
            # Index files are written under a lock, for which the other thread would have to wait.
            if not busy and kind.startswith("sync") and self.rng.random() < 0.4:
                busy = True
                try:
                    self._meanwhile(partition, f"{kind} {path}")
                finally:
                    busy = False

        self.disk.on_call = meanwhile
        try:
            self.ops.flush(partition)
        finally:
            self.disk.on_call = None

    def _cut_beside(self, partition: Partition) -> None:
        """Another thread writes checkpoints while this one truncates."""
        busy = False

        def meanwhile(kind: str, path: str) -> None:
            nonlocal busy
            # The other thread would have to wait for a checkpoint itself.
            if not busy and f"/{partition.name}-0" in path and self.rng.random() < 0.5:
                busy = True
                self.note(f"  meanwhile, before {kind} {path}: checkpoints")
                self.logs.checkpoints.write_recovery_points()
                self.logs.checkpoints.write_high_watermarks()
                busy = False

        self.disk.on_call = meanwhile
        try:
            self.rng.choice((self.ops.truncate, self.ops.truncate_fully))(partition)
        finally:
            self.disk.on_call = None

    def _meanwhile(self, partition: Partition, what: str) -> None:
        if partition.log is None or partition.log.failure is not None or partition.log.closed:
            return
        name = self.rng.choice(self.beside)
        self.note(f"  meanwhile, before {what}: {name}")
        try:
            self._do(name, partition)
        except StorageFailure:
            self._adopt_tail(partition)

    def _hold(self, partition: Partition) -> None:
        """A reader is slow: its response waits while the log changes."""
        log = partition.log
        if log is not None and log.log_start_offset < log.log_end_offset:
            offset = self.rng.randrange(log.log_start_offset, log.log_end_offset)
            self.held.append(memoryview(log.read(offset, max_bytes=self.rng.choice((1, 2000, 20_000))).records))

    def _recreate(self, partition: Partition) -> None:
        """Delete the topic, and create another one with its name."""
        self.leaving = replace(partition)
        self.logs.delete(partition.topic_id, 0, self.ops.now_ms)
        if self.rng.random() < 0.5:
            rename_deleted(self.logs)  # a worker was faster than the creation of the next topic with the name
        partition.topic_id, partition.model, partition.log = self.rng.randbytes(16), PartitionModel(), None
        self._create(partition)
        self.leaving = None

    def _create(self, partition: Partition) -> None:
        partition.epoch, partition.leads = 0, True
        partition.log = self.logs.create(
            partition.name,
            0,
            partition.topic_id,
            self.config_for(partition.name, partition.topic_id),
            now_ms=self.ops.now_ms,
        )

    def _take_note_of_flushes(self) -> None:
        assert not any(POISON in bytes(view) for view in self.held), "what an answer shows was cut off: SIGBUS"
        for partition in self.partitions:
            log, model = partition.log, partition.model
            assert log is not None and log.recovery_point <= log.log_end_offset == model.end
            model.flushed = log.recovery_point
            model.settle()

    # Faults

    def _after_full(self, partition: Partition) -> None:
        """An operation on a full disk changed nothing, or took the directory offline: it was never done by half."""
        for other in self.partitions:
            if other.log is not None and other.log.failure is None and not other.log.closed:
                model = other.model
                self._adopt_tail(other)
                if model.end_floor is not None and other.log.log_end_offset == model.end_floor != model.end:
                    model.truncate(model.end_floor)
                if model.start_ceiling is not None:
                    assert model.start <= other.log.log_start_offset <= max(model.start_ceiling, model.start)
                    model.start = model.kept_start = other.log.log_start_offset
                check_batches(other.log, model)
                check_producers(other.log, model)
                model.settle()

    def _adopt_tail(self, partition: Partition) -> None:
        """A leader's batches are written one by one if necessary: as many as there is space for."""
        log, model = partition.log, partition.model
        if log is not None and log.failure is None:
            for batch in model.tail:
                if batch.last < log.log_end_offset:
                    model.append(batch)
            model.tail = []

    def _offline(self, partition: Partition) -> None:
        """The disk failed: there are no more writes, but reads go on; then the node ends cleanly or not."""
        self.note(f"offline: {self.disk.failed}")
        for other in self.partitions:
            if other.log is None or other.log.closed:
                continue
            with pytest.raises(StorageFailure):
                other.log.append(self._any_batch(), leader_epoch=other.epoch, now_ms=self.ops.now_ms)
            if other is not partition and other.log.failure is not None:
                check_batches(other.log, other.model)
        if self.rng.random() < 0.3:
            self.note("stop")
            self.logs.close_all()
        self._crash()

    def _any_batch(self) -> bytes:
        from ottla.protocol.records.builder import build_batch

        return build_batch([(b"k", b"v", self.ops.now_ms)])

    def _stop_or_crash(self) -> None:
        rng = self.rng
        if rng.random() < self.stops:
            self._stop()
        else:
            self._crash()

    def _stop(self) -> None:
        rng, disk = self.rng, self.disk
        fault = rng.choices(*zip(*self.stop_faults, strict=True))[0]
        self.note(f"stop {fault}")
        if fault == "kill":
            disk.kill_after(rng.randint(1, 25))
        elif fault == "failure":
            disk.fail_after(rng.randint(1, 20))
        elif fault == "full":
            disk.room_bytes = disk.used_bytes() + rng.choice((0, 50, 500, 3000))
        clean = False
        self.held.clear()
        try:
            self.logs.close_all(broker_epoch=7)
            clean = disk.exists(f"{DATA}/.kafka_cleanshutdown")
        except (Killed, StorageFailure):
            pass
        assert clean or fault != "none"
        disk.room_bytes = CAPACITY_BYTES
        disk.disarm()
        power = rng.random() < 0.5
        self.note(f"stopped: clean {clean}, then power off {power}")
        if clean:
            for partition in self.partitions:
                model = partition.model
                model.flushed, model.durable_start = model.end, model.start
                model.kept_start = model.start
            for _ in range(rng.choice(self.damages)):
                self._damage_a_copy()
        disk.crash(power)
        self._boot(power, clean)

    def _crash(self) -> None:
        rng = self.rng
        for partition in self.partitions:
            if partition.log is not None and rng.random() < 0.3:
                self._tear(partition)
        power = rng.random() < self.power_losses
        self.note("power loss" if power else "kill")
        self.held.clear()
        self.disk.crash(power)
        self._boot(power, clean=False)

    def _tear(self, partition: Partition) -> None:
        """The process died in the middle of an append: within a copy, or between the copy and the stamp of offset and length."""
        log = partition.log
        assert log is not None
        segment = log.segments.active
        mapped = segment.file.mapped
        if mapped is None or log.failure is not None or mapped.size <= segment.file.size:
            return
        batch, room = self._any_batch(), mapped.size - segment.file.size
        if partition.leads and len(batch) <= room and segment.indexes.loaded and self.rng.random() < 0.5:
            with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
                patch.setattr("ottla.storage.segment.segment.OFFSET_LENGTH_EPOCH", DiesInIt())
                segment.append(
                    memoryview(batch), len(batch), log.log_end_offset, log.log_end_offset, partition.epoch, 0
                )
        else:
            cut = min(self.rng.randint(1, 60), room)
            mapped.buffer[segment.file.size : segment.file.size + cut] = batch[:cut]

    def _damage_a_copy(self) -> None:
        """A medium loses a file of a cleanly stopped node; the history itself goes on with the undamaged files."""
        rng = random.Random(self.rng.getrandbits(32))
        disk = copy_of(self.disk, rng, self.ops.now_ms)
        path = pick(disk, rng)
        what = damage(disk, path, rng)
        self.note(f"damage: {what}")
        outcome = DamagedNode(disk, DATA, CLUSTER_ID, self.partitions, rng).check(
            self.config_for, self.ops.now_ms, path
        )
        self.note(f"damage: {outcome}")

    # Restarts

    def _boot(self, power: bool, clean: bool) -> None:
        """Start the node, which may die once or twice more while it starts, and check everything."""
        rng, disk = self.rng, self.disk
        while not clean and self.restarts and rng.random() < 0.2:
            disk.kill_after(rng.randint(1, 30))
            try:
                self._open()
            except Killed:
                self.note("died while starting")
            again = rng.random() < 0.5
            power |= again
            disk.crash(again)
        self.restarts += 1
        self._open()
        assert self.logs.directories[0].failure is None
        for partition in self.partitions:
            self._find(partition, power)
        for partition in self.partitions:
            self._check(partition, exact=False)
        if not clean and rng.random() < 0.3:
            self._boot_again()
        self._take_note_of_flushes()
        if rng.random() < 0.5:
            for partition in self.partitions:
                self.ops.repeat(partition)
                self.ops.append(partition)

    def _boot_again(self) -> None:
        """A second restart finds what the first found."""
        before = {p.name: facts(p.log) for p in self.partitions if p.log is not None}
        self.disk.crash(power=False)
        self._open()
        for partition in self.partitions:
            partition.log = self.logs.open.get(partition.topic_id, 0)
            if partition.log is None:
                self._create(partition)  # nothing was ever written to it
            assert partition.log is not None
            assert facts(partition.log) == before[partition.name], (
                f"{partition.name} is not the same at a second restart"
            )

    def _open(self) -> None:
        directories = open_log_dirs(self.disk, [DATA], CLUSTER_ID, NODE_ID)
        self.logs = Logs(
            self.disk, directories, random.Random(self.rng.getrandbits(32)), Mappings(self.rng.choice((1, 3, 99)))
        )
        self.logs.open_all(self.config_for, self.ops.now_ms)

    def _find(self, partition: Partition, power: bool) -> None:
        """Return the partition's log after a restart; the broker creates a missing log."""
        log = self.logs.open.by_name(partition.name, 0)
        leaving = self.leaving
        if leaving is not None and leaving.name == partition.name:
            # Its deletion was in progress: the log is complete, or gone.
            if log is None:
                partition.topic_id, partition.model = self.rng.randbytes(16), PartitionModel()
            elif log.topic_id != partition.topic_id:
                assert log.topic_id == leaving.topic_id
                partition.topic_id, partition.model = leaving.topic_id, leaving.model
                partition.epoch, partition.leads = leaving.epoch, leaving.leads
            self.leaving = None
        model = partition.model
        if log is None or log.topic_id != partition.topic_id:
            lost = [batch for batch in model.batches if batch.last < model.flushed]
            assert not lost, f"{partition.name} is not there, and {len(lost)} batches of it were flushed"
            assert power or not model.batches, f"{partition.name} is not there after a kill"
            partition.model = PartitionModel()
            self._create(partition)
            return
        partition.log = log
        check_recovered(log, model, power=power)

    def _check(self, partition: Partition, exact: bool) -> None:
        log, model = partition.log, partition.model
        assert log is not None
        check_batches(log, model)
        check_producers(log, model, exact=exact)
        check_epochs(log, model)
        check_lookups(log, model, self.rng)
