"""Checks that the directories belong to one node of one KRaft cluster and that no process uses them, and reads the node's
metadata log.

The log is opened and replayed as a start does it, up to its end. A batch at the end that the quorum has not committed counts, too:
the check is made without the other voters.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.loader import MetadataLoader
from ottla.controller.raft.batches import CommittedBatch
from ottla.controller.raft.log_state import OffsetAndEpoch
from ottla.controller.raft.metadata_log import DIRECTORY, MetadataLog
from ottla.controller.raft.raft_config import RaftConfig
from ottla.controller.raft.voters import VoterSet
from ottla.protocol.errors import KafkaError, ProtocolError
from ottla.protocol.features import KRAFT_VERSION, metadata_version_name, supported_levels
from ottla.protocol.internal_topics.metadata_records import UnknownRecord, ZkMigrationStateRecord, decode_record
from ottla.protocol.primitives import uuid_to_str
from ottla.protocol.releases import METADATA_VERSION, METADATA_VERSION_MIN, RELEASES, Advertised
from ottla.protocol.schema import ZERO_UUID
from ottla.protocol.work import do_now
from ottla.storage.directories.log_dirs import CLEAN_MARK, LOCK, META_PROPERTIES, MetaProperties, read_meta_properties
from ottla.storage.errors import CorruptFile, InconsistentLogDirectory, LogDirectoryLocked, StorageFailure
from ottla.storage.files import FileLock, Files

RUN_AS = "run this command as the user that Kafka ran as"
#: ZkMigrationState: none, and one that is finished. Between them brokers still read and write ZooKeeper.
ZK_NONE, ZK_FINISHED = 0, 3
#: A node advertises the older release unless the cluster has passed it, so that Apache Kafka of that release can go on again.
ADVERTISED = ("4.3.1", next(iter(RELEASES)))


class CannotAdopt(Exception):
    """The reasons why directories are not adopted, before anything is changed: all that one stage of the check has found."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = tuple(reasons)


@dataclass(frozen=True, slots=True)
class Ownership:
    """The cluster and the node whose names all the directories have."""

    cluster_id: str
    node_id: int
    #: The identity of each directory by its path, in the order in which they were named.
    identities: dict[str, MetaProperties]
    #: The directory that has the metadata log.
    metadata_directory: str
    #: Directories whose last stop was not clean: every log is recovered at the start.
    unclean: tuple[str, ...]

    @property
    def paths(self) -> list[str]:
        return list(self.identities)


def identify(files: Files, paths: Sequence[str]) -> Ownership:
    """Return whose the directories are. Raises CannotAdopt: they are none, or not those of one node."""
    found: dict[str, MetaProperties] = {}
    reasons: list[str] = []
    for path in dict.fromkeys(os.path.normpath(path) for path in paths):
        try:
            found[path] = _identity(files, path)
        except (InconsistentLogDirectory, StorageFailure) as failure:
            reasons.append(str(failure))
    reasons += _disagreements(found)
    if not reasons:
        with_log = [path for path in found if files.exists(f"{path}/{DIRECTORY}")]
        if len(with_log) != 1:
            reasons.append(_metadata_reason(list(found), with_log))
    if reasons:
        raise CannotAdopt(reasons)
    first = next(iter(found.values()))
    unclean = tuple(path for path in found if not files.exists(f"{path}/{CLEAN_MARK}"))
    return Ownership(first.cluster_id, first.node_id, found, with_log[0], unclean)


def _identity(files: Files, path: str) -> MetaProperties:
    if not files.exists(path):
        raise InconsistentLogDirectory(f"there is no directory {path}: is its disk mounted?")
    try:
        names = files.list_dir(path)
        meta = read_meta_properties(files, path)
    except NotADirectoryError:
        raise InconsistentLogDirectory(f"{path} is a file: name the directory that log.dirs names") from None
    except StorageFailure as failure:
        if isinstance(failure.cause, NotADirectoryError):
            raise InconsistentLogDirectory(f"{path} is a file: name the directory that log.dirs names") from None
        if isinstance(failure.cause, PermissionError):
            raise InconsistentLogDirectory(f"{failure}: {RUN_AS}") from None
        raise
    if meta is not None:
        return meta
    if nodes := [name for name in names if files.exists(f"{path}/{name}/{META_PROPERTIES}")]:
        raise InconsistentLogDirectory(
            f"{path} is no log directory, but has some ({', '.join(nodes)}): name those of one node"
        )
    raise InconsistentLogDirectory(
        f"{path} has no {META_PROPERTIES}: it is no log directory, or was never formatted; name what log.dirs names"
    )


def _disagreements(found: dict[str, MetaProperties]) -> Iterator[str]:
    clusters = {path: meta.cluster_id for path, meta in found.items()}
    nodes = {path: str(meta.node_id) for path, meta in found.items()}
    for what, named in (("clusters", clusters), ("nodes", nodes)):
        if len(set(named.values())) > 1:
            texts = ", ".join(f"{path} of {name}" for path, name in named.items())
            yield f"the directories are of different {what} ({texts}): name those of one node"
    ids = [meta.directory_id for meta in found.values() if meta.directory_id is not None]
    if len(set(ids)) < len(ids):
        yield "two of the directories have the same directory.id: one is a copy of the other; leave the copy out"


def _metadata_reason(paths: list[str], with_log: list[str]) -> str:
    if with_log:
        return f"{' and '.join(with_log)} each have a metadata log ({DIRECTORY}): leave the one out that metadata.log.dir does not name"
    return f"{', '.join(paths)} {'has' if len(paths) == 1 else 'have'} no metadata log ({DIRECTORY}): name all of log.dirs and metadata.log.dir"


@contextmanager
def unused(files: Files, paths: Sequence[str]) -> Iterator[None]:
    """Hold the locks of the directories, so that no node starts on them meanwhile.

    Raises:
        CannotAdopt: a running node has one of them, or they cannot be written.
    """
    held: list[FileLock] = []
    reasons: list[str] = []
    try:
        for path in paths:
            try:
                held.append(files.lock(f"{path}/{LOCK}"))
            except LogDirectoryLocked:
                reasons.append(f"{path} is in use by a running node, of Kafka or of Ottla: stop it in order first")
            except StorageFailure as failure:
                reasons.append(f"{failure}: {RUN_AS}")
        if reasons:
            raise CannotAdopt(reasons)
        yield
    finally:
        for lock in held:
            lock.release()


@dataclass(frozen=True, slots=True)
class FoundMetadata:
    """The metadata at the end of the node's log."""

    image: MetadataImage
    kraft_version: int
    voters: VoterSet
    #: The ids of the voters, those of a static quorum, too. Empty if the node never knew them.
    voter_ids: frozenset[int]
    leader_epoch: int
    log_start_offset: int
    log_end_offset: int
    latest_snapshot: OffsetAndEpoch | None
    #: The release that the node has to advertise to support the features.
    release: str

    def levels(self) -> dict[str, int]:
        """Return the finalized levels of all features."""
        return dict(sorted({**self.image.features.levels, KRAFT_VERSION: self.kraft_version}.items()))


def read_metadata(files: Files, found: Ownership, now_ms: int) -> FoundMetadata:
    """Open the metadata log and replay it. `files` must be a preview, because opening recovers the log.

    Raises:
        CannotAdopt: it is damaged, of a newer Kafka, or of a cluster that is between ZooKeeper and KRaft.
    """
    path = found.metadata_directory
    identity = found.identities[path]
    config = RaftConfig(found.node_id, identity.directory_id or ZERO_UUID, found.cluster_id)
    try:
        log = MetadataLog(files, path, config, now_ms)
        loader, migration = _replayed(log)
        election = log.election.read()
    except UnknownRecord as unknown:
        raise CannotAdopt([_newer(path, f"its log has a {unknown}")]) from None
    except (CorruptFile, StorageFailure, KafkaError, ProtocolError) as damage:
        raise CannotAdopt([f"the metadata log in {path} is damaged: {damage}"]) from None
    image, voters = loader.image, log.voters.last
    read = FoundMetadata(
        image,
        log.voters.kraft_version,
        voters,
        frozenset(voters.ids) or log.election.voter_ids,
        -1 if election is None else election.epoch,
        log.log.log_start_offset,
        log.log.log_end_offset,
        log.state.latest_snapshot,
        _release(image, log.voters.kraft_version),
    )
    if reasons := [*_unsupported(path, read), *_between(path, image, migration), *_missing_directories(found, image)]:
        raise CannotAdopt(reasons)
    return read


def _replayed(log: MetadataLog) -> tuple[MetadataLoader, int]:
    loader, migration = MetadataLoader(), ZK_NONE
    latest = log.state.latest_snapshot
    if latest is not None:
        migration = _last_migration(log.snapshots.reader(latest).values(), migration)
        do_now(loader.handle_snapshot(log.snapshots.reader(latest)))
    for view in log.log.batches(loader.last_offset + 1):
        batch = CommittedBatch(view)
        migration = _last_migration(batch.records, migration)
        do_now(loader.handle_commit([batch]))
    return loader, migration


def _last_migration(values: Iterable[bytes], known: int) -> int:
    """Return the last state of a migration from ZooKeeper among the records, which the image does not have."""
    for value in values:
        if value[:2] == b"\x01\x15":  # the frame, and the key of ZkMigrationStateRecord
            record, _ = decode_record(value)
            assert isinstance(record, ZkMigrationStateRecord)
            known = record.zk_migration_state
    return known


def _release(image: MetadataImage, kraft_version: int) -> str:
    """Return the first release that supports every finalized feature, or else the last."""
    levels = {**image.features.levels, KRAFT_VERSION: kraft_version}
    return next((name for name in ADVERTISED if not _beyond(levels, name)), ADVERTISED[-1])


def _beyond(levels: dict[str, int], release: str) -> list[str]:
    """Return the features whose level the release does not support."""
    supported = supported_levels(Advertised(RELEASES[release]))
    return [name for name, level in levels.items() if level and level > supported.get(name, (0, 0))[1]]


def _unsupported(path: str, read: FoundMetadata) -> Iterator[str]:
    levels = read.levels()
    latest = ADVERTISED[-1]
    for name in _beyond(levels, latest):
        level = metadata_version_name(levels[name]) if name == METADATA_VERSION else levels[name]
        _, highest = supported_levels(Advertised(RELEASES[latest])).get(name, (0, 0))
        known = metadata_version_name(highest) if name == METADATA_VERSION else highest
        yield _newer(
            path,
            f"{name} is {level}, and {known} is the highest known here"
            if highest
            else f"feature {name} is not known here",
        )
    lowest = read.image.features.metadata_version
    if 0 < lowest < METADATA_VERSION_MIN:
        yield (
            f"metadata.version in {path} is {lowest}, and {metadata_version_name(METADATA_VERSION_MIN)} is the lowest that Kafka 4 "
            "and Ottla know: raise it with Kafka 3.9 first"
        )


def _newer(path: str, what: str) -> str:
    return f"{path} is of a newer Kafka: {what}. Use a newer Ottla; metadata cannot be lowered here"


def _between(path: str, image: MetadataImage, migration: int) -> Iterator[str]:
    migrating = [node for node, broker in image.cluster.brokers.items() if broker.is_migrating_zk_broker]
    if migrating or migration not in (ZK_NONE, ZK_FINISHED):
        brokers = f"; brokers {', '.join(map(str, sorted(migrating)))} are still of ZooKeeper" if migrating else ""
        yield f"the migration of {path} from ZooKeeper is not finished{brokers}: finish it with Kafka 3.9 first (KIP-866)"


def _missing_directories(found: Ownership, image: MetadataImage) -> Iterator[str]:
    broker = image.cluster.brokers.get(found.node_id)
    known = {meta.directory_id for meta in found.identities.values()}
    for directory in broker.directories if broker is not None else ():
        if directory not in known:
            yield (
                f"node {found.node_id} has one more log directory, with directory.id {uuid_to_str(directory)}: name it, too, because "
                "its partitions would be missing. If its disk is lost, start Kafka without it once"
            )
