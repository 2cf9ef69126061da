"""The metadata of a large cluster, put into the directory of one node: 50 brokers, of which this node is one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ottla.controller.metadata.encoding import encode_metadata
from ottla.controller.metadata.image import EMPTY, MetadataDelta, MetadataImage
from ottla.controller.raft.batches import committed_batches
from ottla.controller.raft.log_state import OffsetAndEpoch
from ottla.controller.raft.metadata_log import MetadataLog
from ottla.controller.raft.raft_config import RaftConfig
from ottla.controller.raft.snapshots import SnapshotWriter
from ottla.controller.raft.voters import QuorumEndpoint, ReplicaKey, Voter, VoterSet
from ottla.protocol.internal_topics.metadata_records import PartitionRecord, TopicRecord, decode_record
from ottla.storage.files import OsFiles

BROKERS = 50
REPLICAS = 3
PARTITIONS_OF_A_TOPIC = 100
NOW_MS = 1_700_000_000_000


def grow(directory: Path, partitions: int, node_id: int = 1) -> int:
    """Write, at the end of a stopped node's metadata log, a snapshot with this number of further partitions; return how many of
    them have a replica on the node.
    """
    files, endpoints = OsFiles(), (QuorumEndpoint("CONTROLLER", "127.0.0.1", 1),)
    voters = VoterSet.of([Voter(ReplicaKey(node_id), endpoints)])
    log = MetadataLog(files, str(directory), RaftConfig(node_id, b"d" * 16, "c", endpoints, voters), NOW_MS)
    image = _image_of(log)
    at = OffsetAndEpoch(log.state.end_offset, log.state.last_epoch)
    writer = SnapshotWriter(
        files,
        log.snapshots.path(at),
        at,
        last_contained_log_timestamp=NOW_MS,
        kraft_version=0,
        voters=None,
        now_ms=NOW_MS,
    )
    log.close()
    records = [*image.to_records(), *_topics(partitions, node_id)]
    for start in range(0, len(records), 500):
        writer.append(encode_metadata(records[start : start + 500], image.features.metadata_version))
    writer.freeze()
    return sum(isinstance(record, PartitionRecord) and node_id in record.replicas for record in records)


def _image_of(log: MetadataLog) -> MetadataImage:
    delta = MetadataDelta(EMPTY)
    offset = 0
    while offset < log.state.end_offset:
        batches = committed_batches(bytes(log.log.read(offset, max_bytes=1 << 20).records))
        for batch in batches:
            delta.replay_all(decode_record(value)[0] for value in batch.records)
        offset = batches[-1].last_offset + 1
    return delta.apply(offset - 1, log.state.last_epoch)


def _topics(partitions: int, node_id: int) -> Iterator[Any]:
    """Yield the records of the topics. The other brokers are not registered, and this one is in no ISR, as after a fence: so no
    election changes a partition meanwhile.
    """
    brokers = [node_id, *range(1000, 1000 + BROKERS - 1)]
    for number in range(-(-partitions // PARTITIONS_OF_A_TOPIC)):
        topic_id = (number + 1).to_bytes(16, "big")
        yield TopicRecord(name=f"topic-{number}", topic_id=topic_id)
        for index in range(PARTITIONS_OF_A_TOPIC):
            first = (number * 7 + index) % BROKERS
            replicas = [brokers[(first + each) % BROKERS] for each in range(REPLICAS)]
            yield PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=replicas,
                isr=(in_sync := [each for each in replicas if each != node_id]),
                leader=in_sync[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=[bytes(16)] * REPLICAS,
            )
