"""What the logs of the node have: opened in a preview, by the code that a start runs, with what that would change and cannot open."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from random import Random

from ottla.controller.metadata.image import MetadataImage
from ottla.node.adoption.directories import CannotAdopt, Ownership
from ottla.node.adoption.preview import PreviewFiles
from ottla.protocol.primitives import new_uuid
from ottla.protocol.records.compression import CODECS
from ottla.storage.directories.log_dirs import LogDir, MetaProperties
from ottla.storage.directories.logs import Logs
from ottla.storage.errors import DamagedPartition
from ottla.storage.log.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.producers.producer_state import NO_OFFSET
from ottla.storage.segment.walk import REMEDY, DamagedLog

#: The codecs of a log are those of this many batches at its start, and of as many in its newest segment.
SAMPLED_BATCHES = 16


@dataclass(slots=True)
class FoundLogs:
    """The partitions of the node, and what a start does to them."""

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
        return sum(log.size for log in self.logs.open)

    def of_topic(self, name: str) -> list[Log]:
        """The partitions of a topic that are here."""
        return sorted((log for log in self.logs.open if log.topic == name), key=lambda log: log.partition)


class _Lines(logging.Handler):
    """Keeps warnings in place of printing them."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps one line."""
        self.lines.append(record.getMessage())


@contextmanager
def kept_warnings() -> Iterator[list[str]]:
    """The warnings of the node's code go into this list while it runs for the check."""
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
    """Opens every log of the directories in the preview.

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
        logs.open_all(lambda topic, _: LogConfig(), now_ms)
    reasons = [str(directory.failure) for directory in directories if directory.failure is not None]
    reasons += [f"{damage}. Remedy: {_remedy(damage)}" for damage in logs.damaged.values()]
    if reasons:
        raise CannotAdopt(reasons)
    for log in logs.open:
        _count(read, log)
    _compare(read, found.node_id, image)
    return read


def _remedy(damage: DamagedPartition) -> str:
    return damage.cause.remedy if isinstance(damage.cause, DamagedLog) else REMEDY


def _count(read: FoundLogs, log: Log) -> None:
    states = list(log.producers)
    read.producers += len(states)
    read.open_transactions += sum(state.current_txn_first_offset != NO_OFFSET for state in states)
    newest = max(log.segments.active.base_offset, log.log_start_offset)
    for start in sorted({log.log_start_offset, newest}):
        for batch in islice(log.batches(start), SAMPLED_BATCHES):
            if not batch.is_control:
                read.codecs[CODECS[batch.compression].name if batch.compression < len(CODECS) else "unknown"] += 1


def _compare(read: FoundLogs, node_id: int, image: MetadataImage) -> None:
    """Compares the directories with the replicas that the metadata gives to this node."""
    for log in read.logs.open:
        topic = image.topics.by_id(log.topic_id)
        partition = None if topic is None else topic.partitions.get(log.partition)
        if partition is None or node_id not in partition.replicas:
            read.strays.append(log.directory)
    for topic in image.topics:
        for index, partition in topic.partitions.items():
            if node_id in partition.replicas and read.logs.open.get(topic.id, index) is None:
                read.without_files.append(f"{topic.name}-{index}")
