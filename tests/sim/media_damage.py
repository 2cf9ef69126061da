"""A medium that has lost something below the recovery point: one file of a copied disk is damaged, and a node is started on it.

Whatever file it is: no wrong byte is read, the partitions that it is not of are as they were, and its own one is recovered from
its log, or refused with a typed error that names the file. Bits that flip are tried where a CRC or the log itself shows it;
Kafka's text checkpoints and `.txnindex` have none, so of those whole sectors are lost.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import iter_batches
from ottla.storage.directories.log_dirs import open_log_dirs
from ottla.storage.directories.logs import ConfigFor, Logs
from ottla.storage.errors import DamagedPartition, InconsistentLogDirectory, LogDirectoryOffline, StorageFailure
from ottla.storage.log.log import Log
from tests.protocol.records.reference import crc_is_valid
from tests.sim.disk import SimDisk
from tests.sim.inodes import POISON, SECTOR_BYTES, Inode, poison
from tests.sim.partition_checks import check_aborted, check_epochs, check_lookups, check_producers
from tests.sim.partition_model import Stored
from tests.sim.partition_ops import Partition

FLIPPED = (".log", ".index", ".timeindex", ".snapshot")
# What can be made again from the log.
REMADE = (".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint")
# Nothing is read of these.
IGNORED = (".lock", ".kafka_cleanshutdown")


def copy_of(disk: SimDisk, rng: random.Random, now_ms: int) -> SimDisk:
    other = SimDisk(rng, lambda: now_ms)
    other._root = copy.deepcopy(disk._root)
    other.crash(power=False)
    return other


def damage(disk: SimDisk, path: str, rng: random.Random) -> str:
    """Damage a file that is not empty, and return a description of the damage."""
    inode = disk._must(path)
    assert isinstance(inode, Inode)
    data = inode.data
    at = rng.randrange(len(data))
    sector = at // SECTOR_BYTES * SECTOR_BYTES
    end = min(sector + SECTOR_BYTES, len(data))
    kinds = ["zeros", "garbage", "unreadable"]
    if path.endswith(FLIPPED):
        kinds += ["flip", "flip"]
    if path.endswith(REMADE):
        kinds.append("missing")
    kind = rng.choice(kinds)
    if kind == "zeros":
        data[sector:end] = bytes(end - sector)
    elif kind == "garbage":
        data[sector:end] = rng.randbytes(end - sector)
    elif kind == "flip":
        data[at] ^= 1 << rng.randrange(8)
    elif kind == "unreadable":
        data[sector:end] = poison(end - sector)
        inode.unreadable.append((sector, end))
    else:
        disk.remove(path)
    inode.durable = bytes(data)
    return f"{kind} at {at} of {len(data)} of {path}"


def pick(disk: SimDisk, rng: random.Random) -> str:
    """Return a file of the node; log files are chosen more often than their number among all files would give."""
    files = [path for path, data in disk.tree().items() if data and not path.endswith(IGNORED)]
    logs = [path for path in files if path.endswith(".log")]
    return rng.choice(logs) if logs and rng.random() < 0.4 else rng.choice(files)


class DamagedNode:
    """A node on the damaged copy, and the data that may be requested from it."""

    def __init__(
        self, disk: SimDisk, directory: str, cluster_id: str, partitions: Sequence[Partition], rng: random.Random
    ) -> None:
        self.disk, self.directory, self.cluster_id, self.rng = disk, directory, cluster_id, rng
        self.partitions = partitions
        self.unreadable = False

    def check(self, config_for: ConfigFor, now_ms: int, path: str) -> str:
        """Start the node and read everything; return the effect of the damage."""
        self.unreadable = self.disk.exists(path) and bool(self.disk._must(path).unreadable)
        try:
            directories = open_log_dirs(self.disk, [self.directory], self.cluster_id, 0)
        except InconsistentLogDirectory as refusal:
            assert path.endswith("meta.properties") and path in str(refusal), refusal
            return "refused to start"
        logs = Logs(self.disk, directories, random.Random(1))
        try:
            logs.open_all(config_for, now_ms)
        except Exception as error:
            raise AssertionError(f"the node does not start: {error!r}") from error
        if not directories[0].online:
            assert path in str(directories[0].failure), f"{directories[0].failure} does not name {path}"
            return "directory offline"
        outcome = "recovered"
        for partition in self.partitions:
            own = f"/{partition.name}-0/" in path
            try:
                log = logs.create(
                    partition.name, 0, partition.topic_id, config_for(partition.name, partition.topic_id), now_ms=now_ms
                )
            except LogDirectoryOffline:
                assert self.unreadable, "a read failed, and there was no reason"
                return "directory offline"
            except DamagedPartition as refusal:
                assert own, f"{refusal}, but {path} is not its file"
                assert f"/{partition.name}-0" in str(refusal)
                assert not self.unreadable, f"pages that cannot be read were touched: the process is dead. {refusal}"
                outcome = "partition offline"
                continue
            if self._read_all(log, partition, own) and outcome == "recovered":
                outcome = "damage met"
        if path.endswith(REMADE) and not self.unreadable:
            assert outcome == "recovered", f"{outcome}, though {path} can be made again from the log"
        return outcome

    def _read_all(self, log: Log, partition: Partition, own: bool) -> bool:
        """Check that everything that can be read is right, and return whether something could not be read."""
        model, met = partition.model, False
        # A log may have ended in a gap, which is forgotten at a start: a segment's name may be the only trace of its old end.
        last_end = max((batch.last + 1 for batch in model.batches), default=model.start)
        assert last_end <= log.log_end_offset <= model.end, f"{log} was stopped cleanly, and ended at {model.end}"
        by_base = {batch.base: batch for batch in model.batches}
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            try:
                got = log.read(offset, max_bytes=self.rng.choice((1, 300, 2000)))
            except KafkaError as error:
                assert own and error.code == ErrorCode.CORRUPT_MESSAGE, error
                assert not self.unreadable, f"pages that cannot be read were touched: the process is dead. {error}"
                met, offset = True, offset + 1
                continue
            except StorageFailure:
                assert own
                return True
            records = bytes(got.records)
            assert POISON not in records, f"pages that cannot be read were given away at {offset}"
            for view in iter_batches(memoryview(records)):
                batch = Stored(bytes(view.buffer))
                appended = by_base.get(batch.base)
                assert appended is not None and batch.last == appended.last, f"{batch} was never appended"
                assert batch.epoch == appended.epoch and crc_is_valid(batch.view), f"{batch} is damaged: {appended}"
                assert batch.data == appended.data or batch.base < model.cleaned_until, f"{batch} where {appended} was"
            if not records:
                break
            assert got.next_offset > offset
            offset = got.next_offset
        if log.log_start_offset >= model.start and not met:
            self._look_up(log, partition, own)
        return met

    def _look_up(self, log: Log, partition: Partition, own: bool) -> None:
        try:
            check_lookups(log, partition.model, self.rng)
            if partition.model.cleaned_until == 0:
                check_aborted(log, partition.model, self.rng)
            check_producers(log, partition.model)
            check_epochs(log, partition.model)
        except (KafkaError, StorageFailure):
            assert own
