"""A fork is set back to a time: first the metadata, then what the coordinators knew, then the records (cutting.py).

The new state is built beside the fork, from links to its files, and replaces the fork when it is complete. Until then nothing
is changed. All replicas of a partition become copies of the one with the most records, so that it does not matter which of them
leads, or was moved.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from ottla.broker.transactions.transaction import TransactionState
from ottla.client.failures import Failure
from ottla.client.values import time_text
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.raft.election_store import FILE as ELECTION
from ottla.controller.raft.metadata_log import DIRECTORY
from ottla.local import former_addresses
from ottla.local.directory import ORIGIN, KeptCluster
from ottla.local.former_addresses import together
from ottla.local.snapshots.copying import copy_file, copy_log
from ottla.local.snapshots.cutting import Known, end_at
from ottla.local.snapshots.placing import at_rest, exchange
from ottla.local.snapshots.raised_epochs import opened_metadata, write_floors
from ottla.local.snapshots.sealing import image_of, seal
from ottla.local.snapshots.set_backs import note_set_back
from ottla.local.snapshots.stored_logs import Partition, StoredLog, checkpoint, entries, headers, stored_logs
from ottla.local.snapshots.taking import cluster_at, data_directories, reason_of, start_command
from ottla.protocol.internal_topics.coordinator_records import (
    SHARE_RECORDS,
    TRANSACTION_RECORDS,
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
    TransactionLogKey,
    TransactionLogValue,
)
from ottla.protocol.internal_topics.group_records import GROUP_RECORDS, OffsetCommitKey, OffsetCommitValue
from ottla.protocol.schema import ZERO_UUID
from ottla.server.config.remote_storage import is_remote
from ottla.storage.checkpoint import CLEANER, LOG_START, RECOVERY_POINT, REPLICATION, write_offsets
from ottla.storage.directories.log_dirs import CLEAN_MARK, META_PROPERTIES, write_clean_mark
from ottla.storage.files import OsFiles

OFFSETS, TRANSACTIONS, SHARES = "__consumer_offsets", "__transaction_state", "__share_group_state"
INTERNAL = (OFFSETS, TRANSACTIONS, SHARES)
NOT_ENDED = (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
DECIDED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


@dataclass(slots=True)
class Rewound:
    """The result of rewinding a fork: its present state, and what could not be restored."""

    to_ms: int
    removed_records: int = 0
    #: Topics that were created later: they are removed.
    removed_topics: list[str] = field(default_factory=list)
    #: Topics that were deleted later: they are empty.
    empty_topics: list[str] = field(default_factory=list)
    #: Partitions that were compacted later. If a key has a later record, its record of that time may be missing.
    compacted: list[str] = field(default_factory=list)
    #: The addresses of the nodes at the time.
    addresses: dict[str, list[str]] = field(default_factory=dict)


def rewind_fork(directory: str, to_ms: int, dry_run: bool = False) -> Rewound:
    """Restore a stopped fork to its state at a time. With `dry_run` the new state is built, and dropped.

    Raises:
        Failure: it is no fork, it runs, the time is outside of its data, or the disk failed. The fork is as before, or must be
            made again if the disk failed at the very end.
    """
    kept = cluster_at(directory)
    if not os.path.isfile(os.path.join(directory, ORIGIN)):
        raise Failure(
            f"{directory} is no fork: what a cluster itself has written since would be lost",
            "`ottla fork --into DIR` makes one, and `ottla rewind --dir DIR` is for that",
        )
    if to_ms > time.time_ns() // 1_000_000:
        raise Failure(f"{time_text(to_ms)} is in the future")
    sources = data_directories(directory, kept.nodes)
    with at_rest(sources):
        for data in sources:
            if not os.path.isfile(os.path.join(data, CLEAN_MARK)):
                raise Failure(
                    f"{data} was not stopped in order",
                    f"`{start_command(directory)}` recovers it; stop that with Ctrl-C",
                )
        with _building(directory) as fresh:
            rewound = _build(sources, fresh, kept, to_ms)
            if not dry_run:
                former_addresses.note(directory, rewound.addresses)
                note_set_back(directory, to_ms)
                os.sync()
                exchange(directory, fresh, kept.nodes, f"make another fork: {_origin(directory)}")
    return rewound


@contextmanager
def _building(directory: str) -> Iterator[str]:
    fresh = tempfile.mkdtemp(prefix=".rewound-", dir=directory)
    try:
        yield fresh
    except Exception as failure:
        reason = reason_of(failure, "rewinding", "the fork is as before")
        if reason is None:
            raise
        raise reason from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _origin(directory: str) -> str:
    with open(os.path.join(directory, ORIGIN), encoding="utf-8") as file:
        return f"`ottla fork {json.load(file)['snapshot']}`"


def _build(sources: list[str], fresh: str, kept: KeptCluster, to_ms: int) -> Rewound:
    rewound = Rewound(to_ms)
    targets = data_directories(fresh, kept.nodes)
    scratch = os.path.join(fresh, "metadata")
    image, now = _cut_metadata(sources, scratch, to_ms)
    if remote := sorted(topic.name for topic in now.topics if is_remote(now.configs.for_topic(topic.name))):
        raise Failure(
            f"{', '.join(remote)} have segments in remote storage, which cannot be rewound", "the fork is as before"
        )
    rewound.removed_topics = sorted(topic.name for topic in now.topics if image.topics.by_id(topic.id) is None)
    rewound.empty_topics = sorted(topic.name for topic in image.topics if now.topics.by_id(topic.id) is None)
    replicas = _best_replicas(sources, image)
    ends = _ends(replicas, image, to_ms)
    starts: dict[int, dict[Partition, int]] = {node: {} for node in range(1, kept.nodes + 1)}
    was_start = [checkpoint(data, LOG_START) for data in sources]
    cleaned = [checkpoint(data, CLEANER) for data in sources]
    for partition, log in replicas.items():
        start = was_start[log.node - 1].get(partition, 0)
        ends[partition] = max(ends[partition], start)
        rewound.removed_records += log.end - ends[partition]
        if cleaned[log.node - 1].get(partition, 0) > ends[partition]:
            rewound.compacted.append("-".join(map(str, partition)))
        for node in _nodes_of(image, partition):
            if start and node in starts:
                starts[node][partition] = start
            if node in starts:
                copy_log(log.path, os.path.join(targets[node - 1], os.path.basename(log.path)))
    for node, (source, target) in enumerate(zip(sources, targets, strict=True), 1):
        os.makedirs(target, exist_ok=True)
        copy_file(os.path.join(source, META_PROPERTIES), os.path.join(target, META_PROPERTIES))
        _place_metadata(scratch, os.path.join(source, DIRECTORY), os.path.join(target, DIRECTORY))
        write_offsets(OsFiles(), os.path.join(target, LOG_START), starts[node])
        # All replicas are equal, so the whole log is committed.
        write_offsets(OsFiles(), os.path.join(target, REPLICATION), ends)
        write_clean_mark(OsFiles(), target, -1)
        sealed = seal(target, kept.cluster_id, node, to_ms, ends)
        if sealed.damaged:
            raise Failure(f"{sealed.damaged[0]} cannot be opened", "the fork is as before")
        rewound.addresses = together([rewound.addresses, sealed.addresses])
    write_floors([image], [now], sources, targets)
    return rewound


# -- The metadata ---------------------------------------------------------------------------------------------------------


def _cut_metadata(sources: list[str], scratch: str, to_ms: int) -> tuple[MetadataImage, MetadataImage]:
    """Make a metadata log that ends at the time, from the replica with the most records.

    Return the metadata at its end, and the metadata until now.
    """
    best: tuple[tuple[int, int], str] | None = None
    for number, source in enumerate(sources):
        place = os.path.join(scratch, str(number))
        copy_log(os.path.join(source, DIRECTORY), os.path.join(place, DIRECTORY))
        metadata = opened_metadata(source, place)
        rank = (metadata.log.epochs.latest, metadata.log.log_end_offset)
        metadata.close()
        if best is None or rank > best[0]:
            best = rank, place
    assert best is not None, "a cluster has a node"
    path = os.path.join(best[1], DIRECTORY)
    metadata = opened_metadata(sources[0], best[1])
    now = image_of(metadata)
    end = next(
        (view.base_offset for view in metadata.log.batches(0) if view.max_timestamp > to_ms),
        metadata.log.log_end_offset,
    )
    known = [metadata.snapshots.reader(each) for each in metadata.state.snapshots]
    start = metadata.log.log_start_offset
    for reader in known:
        reader.load_control()
    oldest_ms = known[0].last_contained_log_timestamp if known and start else -1
    if end <= start or oldest_ms > to_ms:
        first = next((view.max_timestamp for view in metadata.log.batches(0)), to_ms)
        raise Failure(
            f"the metadata of {time_text(to_ms)} is not kept", f"it begins at {time_text(max(first, oldest_ms))}"
        )
    for snapshot in metadata.state.snapshots:
        if snapshot.offset > end:
            metadata.snapshots.remove(snapshot)
    metadata.truncate_to(end)
    metadata.close()
    if os.path.exists(point := os.path.join(path, RECOVERY_POINT)):
        os.unlink(point)  # it may be behind the end
    metadata = opened_metadata(sources[0], best[1])
    image = image_of(metadata)
    metadata.close()
    os.rename(path, os.path.join(scratch, DIRECTORY))
    return image, now


def _place_metadata(scratch: str, own: str, target: str) -> None:
    """Give a node the metadata log. The node keeps its own vote, so that it does not vote twice in an epoch."""
    copy_log(os.path.join(scratch, DIRECTORY), target)
    votes = os.path.join(own, ELECTION)
    if os.path.exists(votes):
        copy_file(votes, os.path.join(target, ELECTION))


# -- The logs -------------------------------------------------------------------------------------------------------------


def _nodes_of(image: MetadataImage, partition: Partition) -> tuple[int, ...]:
    topic = image.topics.by_name(partition[0])
    registered = None if topic is None else topic.partitions.get(partition[1])
    return () if registered is None else tuple(registered.replicas)


def _best_replicas(sources: list[str], image: MetadataImage) -> dict[Partition, StoredLog]:
    """Return the replica with the most records, for each partition that existed at the time."""
    found: dict[Partition, StoredLog] = {}
    for node, data in enumerate(sources, 1):
        for partition, log in stored_logs(node, data):
            topic = image.topics.by_name(partition[0])
            if topic is None or topic.id != log.topic_id or partition[1] not in topic.partitions:
                continue  # created later
            if partition not in found or log.rank > found[partition].rank:
                found[partition] = log
    return found


def _ends(replicas: Mapping[Partition, StoredLog], image: MetadataImage, to_ms: int) -> dict[Partition, int]:
    """Return the offset at which each log ended. Logs of coordinators come first: their records are evidence for the others."""
    ends: dict[Partition, int] = {}
    open_: dict[Partition, set[int]] = defaultdict(set)
    prepared: dict[Partition, dict[int, int]] = defaultdict(dict)
    committed: dict[Partition, int] = {}

    def find(topic: str | None) -> None:
        for partition, log in replicas.items():
            if partition in ends or topic not in (None, partition[0]):
                continue
            registered = image.topics.by_name(partition[0])
            assert registered is not None, "`_best_replicas` has found it"
            proven = committed.get(partition, 0)
            known = Known(
                to_ms,
                registered.partitions[partition[1]].leader_epoch,
                image.producer_ids.next_producer_id,
                partition[0] in INTERNAL,
                proven if proven <= log.end else 0,
                frozenset(open_[partition]),
                prepared[partition],
            )
            ends[partition] = end_at(partial(headers, log.path), known)

    find(TRANSACTIONS)
    for partition, log in replicas.items():
        if partition[0] == TRANSACTIONS:
            _note_transactions(log.path, ends[partition], open_, prepared)
    for topic, note in ((OFFSETS, _note_offsets), (SHARES, _note_shares)):
        find(topic)
        for partition, log in replicas.items():
            if partition[0] == topic:
                note(log.path, ends[partition], image, committed)
    find(None)
    return ends


def _note_transactions(
    path: str, end: int, open_: dict[Partition, set[int]], prepared: dict[Partition, dict[int, int]]
) -> None:
    last: dict[str, TransactionLogValue | None] = {}
    for key, value in entries(path, end, TRANSACTION_RECORDS):
        if isinstance(key, TransactionLogKey):
            last[key.transactional_id] = value if isinstance(value, TransactionLogValue) else None
    for state in last.values():
        if state is None or state.transaction_status not in NOT_ENDED:
            continue
        producers = {state.producer_id, state.previous_producer_id, state.next_producer_id} - {-1}
        for topic in state.transaction_partitions or ():
            for number in topic.partition_ids:
                open_[topic.topic, number] |= producers
                if state.transaction_status in DECIDED:
                    decided_ms = state.transaction_last_update_timestamp_ms
                    prepared[topic.topic, number] |= dict.fromkeys(producers, decided_ms)


def _note_offsets(path: str, end: int, image: MetadataImage, committed: dict[Partition, int]) -> None:
    for key, value in entries(path, end, GROUP_RECORDS):
        if isinstance(key, OffsetCommitKey) and isinstance(value, OffsetCommitValue):
            topic = image.topics.by_name(key.topic)
            if topic is not None and value.topic_id in (ZERO_UUID, topic.id):
                partition = key.topic, key.partition
                committed[partition] = max(committed.get(partition, 0), value.offset)


def _note_shares(path: str, end: int, image: MetadataImage, committed: dict[Partition, int]) -> None:
    """Collect the offsets up to which share groups have acknowledged records."""
    for key, value in entries(path, end, SHARE_RECORDS):
        if isinstance(key, ShareSnapshotKey | ShareUpdateKey) and isinstance(
            value, ShareSnapshotValue | ShareUpdateValue
        ):
            topic = image.topics.by_id(key.topic_id)
            if topic is not None:
                partition = topic.name, key.partition
                known = [value.start_offset, *(batch.last_offset + 1 for batch in value.state_batches)]
                committed[partition] = max(committed.get(partition, 0), *known)
