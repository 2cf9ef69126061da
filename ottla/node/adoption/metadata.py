"""What the metadata log of the node says: the cluster's metadata, its features, and the quorum.

The log is opened and replayed as a start does it, up to its end. A batch at the end that the quorum has not committed counts, too:
the check is made without the other voters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.loader import MetadataLoader
from ottla.controller.raft.batches import CommittedBatch
from ottla.controller.raft.log_state import OffsetAndEpoch
from ottla.controller.raft.metadata_log import MetadataLog
from ottla.controller.raft.raft_config import RaftConfig
from ottla.controller.raft.snapshots import SnapshotReader
from ottla.controller.raft.voters import VoterSet
from ottla.node.adoption.directories import CannotAdopt, Ownership
from ottla.protocol.errors import KafkaError, ProtocolError
from ottla.protocol.features import (
    KRAFT_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_MIN,
    metadata_version_name,
    supported_levels,
)
from ottla.protocol.internal_topics.metadata_records import UnknownRecord, ZkMigrationStateRecord, decode_record
from ottla.protocol.primitives import ZERO_UUID, uuid_to_str
from ottla.protocol.releases import KAFKA_4_3, RELEASES, Advertised
from ottla.protocol.work import do_now
from ottla.storage.errors import CorruptFile, StorageFailure
from ottla.storage.files import Files

#: ZkMigrationState: none, and one that is finished. Between them brokers still read and write ZooKeeper.
ZK_NONE, ZK_FINISHED = 0, 3
#: A node advertises the older release unless the cluster has passed it, so that Apache Kafka of that release can go on again.
ADVERTISED = (KAFKA_4_3.name, next(iter(RELEASES)))


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
        """The finalized levels of all features."""
        return dict(sorted({**self.image.features.levels, KRAFT_VERSION: self.kraft_version}.items()))


def read_metadata(files: Files, found: Ownership, now_ms: int) -> FoundMetadata:
    """Opens the metadata log and replays it. `files` must be a preview, because opening recovers the log.

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


class _Watched:
    """Passes records on, and keeps the last state of a migration from ZooKeeper among them, which the image does not have."""

    def __init__(self) -> None:
        self.migration = ZK_NONE

    def values(self, values: Iterable[bytes]) -> Iterator[bytes]:
        for value in values:
            if value[:2] == b"\x01\x15":  # the frame, and the key of ZkMigrationStateRecord
                record, _ = decode_record(value)
                assert isinstance(record, ZkMigrationStateRecord)
                self.migration = record.zk_migration_state
            yield value


class _Snapshot:
    """A snapshot as the loader reads it."""

    def __init__(self, reader: SnapshotReader, watched: _Watched) -> None:
        self.offset, self.epoch = reader.snapshot_id
        self._reader, self._watched = reader, watched

    def values(self) -> Iterator[bytes]:
        return self._watched.values(self._reader.values())


def _replayed(log: MetadataLog) -> tuple[MetadataLoader, int]:
    loader, watched = MetadataLoader(), _Watched()
    latest = log.state.latest_snapshot
    if latest is not None:
        do_now(loader.handle_snapshot(_Snapshot(log.snapshots.reader(latest), watched)))
    for view in log.log.batches(loader.last_offset + 1):
        batch = CommittedBatch(view)
        for _ in watched.values(batch.records):
            pass
        do_now(loader.handle_commit([batch]))
    return loader, watched.migration


def _release(image: MetadataImage, kraft_version: int) -> str:
    """The first release that supports every finalized feature, or else the last."""
    levels = {**image.features.levels, KRAFT_VERSION: kraft_version}
    return next((name for name in ADVERTISED if not _beyond(levels, name)), ADVERTISED[-1])


def _beyond(levels: dict[str, int], release: str) -> list[str]:
    """The features whose level the release does not support."""
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
