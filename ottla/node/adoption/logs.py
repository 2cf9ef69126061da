"""The look at the logs of the node: they are opened in a preview, by the code that a start runs.

It finds what a start would change, and what it cannot open. Of the records that the node's coordinators will load (groups of
each kind, committed offsets, and transactional ids) it looks only at the keys, and the last value of each key, in the
partitions that are here.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from random import Random

from ottla.broker.transactions.transaction import IDLE, TransactionState
from ottla.controller.metadata.image import MetadataImage
from ottla.node.adoption.directories import CannotAdopt, Ownership
from ottla.node.adoption.preview import PreviewFiles
from ottla.protocol.errors import ProtocolError
from ottla.protocol.internal_topics.coordinator_records import (
    TRANSACTION_RECORDS,
    RecordTypes,
    TransactionLogValue,
    decode_key,
    decode_value,
)
from ottla.protocol.internal_topics.group_records import (
    GROUP_RECORDS,
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
    ShareGroupMetadataKey,
    StreamsGroupMetadataKey,
)
from ottla.protocol.primitives import new_uuid
from ottla.protocol.records.compression import CODECS
from ottla.server.config.remote_storage import is_remote
from ottla.storage.directories.log_dirs import LogDir, MetaProperties
from ottla.storage.directories.logs import Logs
from ottla.storage.log.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.producers.producer_states import NO_OFFSET
from ottla.storage.segment.walk import REMEDY, DamagedLog

#: The codecs of a log are those of this many batches at its start, and of as many in its newest segment.
SAMPLED_BATCHES = 16
#: A log that was opened without it would start at its first segment, and lose the epochs of what is in remote storage.
LOCAL, REMOTE = LogConfig(), LogConfig(remote_storage_enable=True)
OFFSETS_TOPIC, TRANSACTIONS_TOPIC = "__consumer_offsets", "__transaction_state"
#: A group is of the kind of its metadata's key.
KINDS = {
    GroupMetadataKey: "classic",
    ConsumerGroupMetadataKey: "consumer",
    ShareGroupMetadataKey: "share",
    StreamsGroupMetadataKey: "streams",
}


@dataclass(slots=True)
class FoundLogs:
    """The partitions of the node, and the changes that a start makes to them."""

    logs: Logs
    #: Replicas that the metadata gives to this node and that have no directory here.
    without_files: list[str] = field(default_factory=list)
    #: Directories of partitions that the metadata does not know any more: a start sets them aside, or removes them.
    strays: list[str] = field(default_factory=list)
    #: The lines that recovery logs: what it truncates and rebuilds.
    recovery: list[str] = field(default_factory=list)
    codecs: Counter[str] = field(default_factory=Counter)
    #: Producers that the logs remember, and those of them with an open transaction.
    producers: int = 0
    open_transactions: int = 0

    def __len__(self) -> int:
        return len(self.logs.open)

    @property
    def bytes(self) -> int:
        """The size of the segments, without indexes."""
        return sum(log.segments.size for log in self.logs.open)

    def of_topic(self, name: str) -> list[Log]:
        """Return the partitions of a topic that are here."""
        return sorted((log for log in self.logs.open if log.topic == name), key=lambda log: log.partition)


class _Lines(logging.Handler):
    """Keeps warnings in place of printing them."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one line."""
        self.lines.append(record.getMessage())


@contextmanager
def kept_warnings() -> Iterator[list[str]]:
    """Yield a list into which the warnings of the node's code go while it runs for the check."""
    logger, handler = logging.getLogger("ottla"), _Lines()
    before = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield handler.lines
    finally:
        logger.removeHandler(handler)
        logger.propagate = before


def read_logs(files: PreviewFiles, found: Ownership, image: MetadataImage, rng: Random, now_ms: int) -> FoundLogs:
    """Open every log of the directories in the preview.

    Raises:
        CannotAdopt: some are damaged, or a directory cannot be read: all of them are named.
    """
    directories = [
        LogDir(path, MetaProperties(meta.cluster_id, meta.node_id, meta.directory_id or new_uuid(rng)))
        for path, meta in found.identities.items()
    ]
    logs = Logs(files, directories, rng)
    read = FoundLogs(logs)
    with kept_warnings() as read.recovery:
        logs.open_all(lambda topic, _: REMOTE if is_remote(image.configs.for_topic(topic)) else LOCAL, now_ms)
    reasons = [str(directory.failure) for directory in directories if directory.failure is not None]
    for damage in logs.damaged.values():
        remedy = damage.cause.remedy if isinstance(damage.cause, DamagedLog) else REMEDY
        reasons.append(f"{damage}. Remedy: {remedy}")
    if reasons:
        raise CannotAdopt(reasons)
    for log in logs.open:
        _count(read, log)
    _compare(read, found.node_id, image)
    return read


def _count(read: FoundLogs, log: Log) -> None:
    states = list(log.producers)
    read.producers += len(states)
    read.open_transactions += sum(state.current_txn_first_offset != NO_OFFSET for state in states)
    newest = max(log.segments.active.base_offset, log.log_start_offset)
    for start in sorted({log.local_start_offset, newest}):
        for batch in islice(log.batches(start), SAMPLED_BATCHES):
            if not batch.is_control:
                read.codecs[CODECS[batch.compression].name if batch.compression < len(CODECS) else "unknown"] += 1


def _compare(read: FoundLogs, node_id: int, image: MetadataImage) -> None:
    """Compare the directories with the replicas that the metadata gives to this node."""
    for log in read.logs.open:
        topic = image.topics.by_id(log.topic_id)
        partition = None if topic is None else topic.partitions.get(log.partition)
        if partition is None or node_id not in partition.replicas:
            read.strays.append(log.directory)
    for topic in image.topics:
        for index, partition in topic.partitions.items():
            if node_id in partition.replicas and read.logs.open.get(topic.id, index) is None:
                read.without_files.append(f"{topic.name}-{index}")


@dataclass(slots=True)
class FoundCoordinators:
    """Numbers by kind and by state."""

    groups: Counter[str] = field(default_factory=Counter)
    committed_offsets: int = 0
    transactions: Counter[str] = field(default_factory=Counter)
    #: Records of a type or version that is not known here; coordinators skip the former, and do not load with the latter.
    unknown_records: int = 0

    @property
    def open_transactions(self) -> int:
        """Transactions whose markers are not all written."""
        idle = {state.kafka_name for state in IDLE}
        return sum(count for state, count in self.transactions.items() if state not in idle)


def read_coordinators(logs: FoundLogs) -> FoundCoordinators:
    """Read the logs of the two internal topics."""
    found = FoundCoordinators()
    for key, _ in _last_records(logs, OFFSETS_TOPIC, GROUP_RECORDS, found):
        if (kind := KINDS.get(type(key))) is not None:
            found.groups[kind] += 1
        elif isinstance(key, (OffsetCommitKey, LegacyOffsetCommitKey)):
            found.committed_offsets += 1
    for _, value in _last_records(logs, TRANSACTIONS_TOPIC, TRANSACTION_RECORDS, found):
        if isinstance(value, TransactionLogValue):
            found.transactions[TransactionState(value.transaction_status).kafka_name] += 1
    return found


def _last_records(
    logs: FoundLogs, topic: str, types: RecordTypes, found: FoundCoordinators
) -> Iterator[tuple[object, object]]:
    """Yield each key that is not deleted, with its last value."""
    last: dict[bytes, bytes] = {}
    for log in logs.of_topic(topic):
        for batch in log.batches(log.log_start_offset):
            for record in () if batch.is_control else batch.records():
                if record.value is None:
                    last.pop(bytes(record.key or b""), None)
                else:
                    last[bytes(record.key or b"")] = bytes(record.value)
    for raw, data in last.items():
        try:
            key = decode_key(types, raw)
            yield key, decode_value(types, key, data)
        except ProtocolError:
            found.unknown_records += 1
