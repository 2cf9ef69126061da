"""The recovery of a snapshot: the traces of the crash are repaired once, and not in each fork.

Each log is opened as a node does it after a crash, gets a new active segment without records, and is closed as at an orderly
stop. So a fork starts at once, and shares all segments with records: it writes to the empty ones.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from random import SystemRandom
from typing import NamedTuple

from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.loader import MetadataLoader
from ottla.controller.raft.batches import CommittedBatch
from ottla.controller.raft.metadata_log import MetadataLog
from ottla.controller.raft.raft_config import RaftConfig
from ottla.controller.raft.voters import VoterSet
from ottla.local.former_addresses import Known, controller_key
from ottla.protocol.work import do_now
from ottla.server.config.remote_storage import is_remote
from ottla.storage.directories.log_dirs import LOCK, MetaProperties, open_log_dirs
from ottla.storage.directories.logs import Logs
from ottla.storage.files import Files, OsFiles
from ottla.storage.log.truncate import truncate_to
from ottla.storage.log_config import LogConfig
from ottla.storage.mapped_file import OsMappedFile

#: During the recovery no segment must be rolled because of size or age, and nothing expires.
CONFIG = LogConfig()
#: A log that was opened without it would start at its first segment, and forget what is in remote storage.
WITH_REMOTE = LogConfig(remote_storage_enable=True)
NO_ENDS: Mapping[tuple[str, int], int] = {}


class Sealed(NamedTuple):
    """The findings in a log directory."""

    #: The directories of partitions that cannot be opened.
    damaged: list[str]
    #: The addresses of all nodes in the metadata (ottla/local/former_addresses.py).
    addresses: Known


def seal(
    directory: str, cluster_id: str, node_id: int, now_ms: int, ends: Mapping[tuple[str, int], int] = NO_ENDS
) -> Sealed:
    """Recover all logs of a log directory that no process uses.

    Nothing is synced. `ends` are the offsets at which logs are to end; records behind them are removed.

    Raises:
        CorruptFile, InconsistentLogDirectory, LogDirectoryLocked, StorageFailure
    """
    files = UnsyncedFiles()
    opened = open_log_dirs(files, [directory], cluster_id, node_id)
    meta = opened[0].meta
    assert meta is not None, "`open_log_dirs` has read it"
    metadata = open_metadata(files, directory, meta, now_ms)
    image = image_of(metadata)
    broker = image.cluster.brokers.get(node_id)
    addresses = addresses_in(image, metadata.voters.last)
    metadata.close()
    logs = Logs(files, opened, SystemRandom())
    logs.open_all(lambda topic, _: WITH_REMOTE if is_remote(image.configs.for_topic(topic)) else CONFIG, now_ms)
    for log in logs.open:
        if (end := ends.get((log.topic, log.partition))) is not None:
            truncate_to(log, end)
        log.roll(now_ms)
    logs.close_all(-1 if broker is None else broker.epoch)
    os.unlink(os.path.join(directory, LOCK))
    return Sealed([each.path for each in logs.damaged.values()], addresses)


def addresses_in(image: MetadataImage, voters: VoterSet) -> Known:
    """Return the addresses of brokers in the metadata, and those of voters in records of its log."""
    brokers = {
        str(broker.id): [f"{each.host}:{each.port}" for each in broker.endpoints.values()]
        for broker in image.cluster.brokers.values()
    }
    return brokers | {
        controller_key(voter.id): [f"{each.host}:{each.port}" for each in voter.endpoints] for voter in voters
    }


class UnsyncedFiles(OsFiles):
    """The file system for the recovery.

    It does not sync files one by one: a snapshot counts only when all of it is on the disk, and 1,000 logs would need 10,000
    syncs.
    """

    def map(self, path: str, capacity: int, writable: bool) -> OsMappedFile:
        return _UnsyncedMapping(path, capacity, writable, self._descriptors)

    def write_atomic(self, path: str, data: bytes, sync: bool = True) -> None:
        super().write_atomic(path, data, sync=False)

    def touch(self, path: str, start: int, end: int) -> None:
        pass

    def sync_file(self, path: str) -> None:
        pass

    def sync_dir(self, path: str) -> None:
        pass


class _UnsyncedMapping(OsMappedFile):
    __slots__ = ()

    def flush(self) -> None:
        pass


# -- The metadata of a node that does not run -------------------------------------------------------------------------------


def open_metadata(files: Files, directory: str, meta: MetaProperties, now_ms: int) -> MetadataLog:
    """Open the metadata log in a log directory, and recover it.

    Raises:
        CorruptFile, StorageFailure
    """
    assert meta.directory_id is not None
    return MetadataLog(files, directory, RaftConfig(meta.node_id, meta.directory_id, meta.cluster_id), now_ms)


def image_of(metadata: MetadataLog) -> MetadataImage:
    """Return the metadata in the whole log, committed or not: the newest snapshot and the batches behind it."""
    loader = MetadataLoader()
    snapshot = metadata.state.latest_snapshot
    if snapshot is not None:
        do_now(loader.handle_snapshot(metadata.snapshots.reader(snapshot)))
    behind = (CommittedBatch(view) for view in metadata.log.batches(loader.last_offset + 1))
    do_now(loader.handle_commit(behind))
    return loader.image
