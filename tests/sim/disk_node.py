"""The logs of one node on a simulated disk, with the few verbs that tests of crashes speak in."""

from __future__ import annotations

import random
from collections.abc import Iterator

from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.control import end_txn_batch
from ottla.storage.directories.log_dirs import MetaProperties, open_log_dirs, write_meta_properties
from ottla.storage.directories.logs import Logs
from ottla.storage.log.log import Log, Origin
from ottla.storage.log.trusted_append import append_trusted
from ottla.storage.log_config import NEVER, LogConfig
from tests.sim.disk import SimDisk

DATA = "/data"
NOW_MS = 1_700_000_000_000
TOPIC_ID = bytes(range(16))
SMALL = LogConfig(segment_bytes=4000, index_interval_bytes=200, file_delete_delay_ms=0, producer_id_expiration_ms=NEVER)


class DiskNode:
    """A node that has the partition `topic-0` as its `log`, created at the start."""

    def __init__(self, seed: int = 0, config: LogConfig = SMALL) -> None:
        self.disk = SimDisk(random.Random(seed), lambda: NOW_MS)
        self.config = config
        self.disk.make_dirs(DATA)
        self.disk.sync_dir("/")
        write_meta_properties(self.disk, DATA, MetaProperties("cluster", 0, bytes(16)))
        self.open()
        self.log: Log = self.create()

    def open(self) -> None:
        directories = open_log_dirs(self.disk, [DATA], "cluster", 0)
        self.logs = Logs(self.disk, directories, random.Random(1))
        self.logs.open_all(lambda topic, topic_id: self.config, NOW_MS)

    def create(self, topic: str = "topic", topic_id: bytes = TOPIC_ID) -> Log:
        return self.logs.create(topic, 0, topic_id, self.config, now_ms=NOW_MS)

    def append(self, fill: int = 0, size: int = 100, epoch: int = 0, log: Log | None = None, **fields: object) -> int:
        """One batch of one record; batches of the same size have the same length. Returns the offset."""
        batch = build_batch([(b"key", bytes([fill % 256]) * size, NOW_MS)], **fields)
        appended = (log or self.log).append(batch, leader_epoch=epoch, now_ms=NOW_MS)
        return appended.first_offset

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        marker = end_txn_batch(
            committed=committed, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=NOW_MS
        )
        append_trusted(self.log, marker, leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR)

    def kill(self) -> Log | None:
        return self._restart(power=False)

    def lose_power(self) -> Log | None:
        return self._restart(power=True)

    def stop(self, *, then_lose_power: bool = False) -> Log | None:
        self.logs.close_all()
        return self._restart(power=then_lose_power)

    def _restart(self, power: bool) -> Log | None:
        self.disk.crash(power)
        self.open()
        found = self.logs.open.get(TOPIC_ID, 0)
        if found is not None:
            self.log = found
        return found


def nodes(count: int = 40, config: LogConfig = SMALL) -> Iterator[DiskNode]:
    """The same node with different luck: what a power loss leaves is chance."""
    return (DiskNode(seed, config) for seed in range(count))


def fills(log: Log) -> list[int]:
    """Return the batches that were written, one by one."""
    return [
        (view.records()[0].value or b"\xff")[0] for view in log.batches(log.log_start_offset) if not view.is_control
    ]


def offsets(log: Log) -> list[int]:
    return [view.base_offset for view in log.batches(log.log_start_offset)]
