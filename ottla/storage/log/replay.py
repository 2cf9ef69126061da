"""Replay of the batches in the log: it rebuilds the producer states and the transaction indexes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from struct import Struct

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    CONTROL_BIT,
    COUNT,
    HEADER,
    LAST_OFFSET_DELTA,
    MAX_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    PRODUCER_ID_AT,
    TRANSACTIONAL_BIT,
    BatchView,
    Header,
)
from ottla.protocol.records.control import ControlType, EndTxnMarker
from ottla.storage.errors import CorruptFile
from ottla.storage.log.log import Log
from ottla.storage.log_files import AbortedTxn
from ottla.storage.producers.producer_snapshots import Decoded
from ottla.storage.producers.producer_states import ProducerStates
from ottla.storage.segment.segment import Segment

logger = logging.getLogger(__name__)

# Most batches have no producer id; skipping one takes 0.3 us.
INT64 = Struct(">q")


def rebuild_producers(log: Log, decoded: Decoded | None = None) -> None:
    """Rebuild the producer states at the log end offset from the newest snapshot that is not beyond it, and the batches since."""
    log.snapshots.forget(lambda offset: offset > log.log_end_offset)
    start = log.snapshots.load(log.producers, log.log_start_offset, log.log_end_offset, decoded)
    for segment, aborted in _replay(log, log.producers, start):
        # After a crash the entry may be missing although the marker is in the log.
        segment.txn_index.append_if_missing(log.files, aborted)
    log.producers.on_high_watermark(log.high_watermark)


def check_txn_indexes(log: Log) -> None:
    """Rebuild corrupt transaction indexes."""
    for damaged in log.segments:
        try:
            damaged.txn_index.entries(log.files)
        except CorruptFile:
            producers = ProducerStates()
            start = log.snapshots.load(producers, log.log_start_offset, damaged.base_offset)
            replayed = _replay(log, producers, start, damaged)
            damaged.txn_index.replace(log.files, [aborted for segment, aborted in replayed if segment is damaged])


def _replay(
    log: Log, producers: ProducerStates, start: int, last: Segment | None = None
) -> Iterator[tuple[Segment, AbortedTxn]]:
    """Replay the batches from `start` to the end of a segment; yield aborted transactions, with the segments of their markers.

    A malformed marker with a valid CRC ends no transaction, so that the batches around it stay readable. Appends reject such a
    marker. Earlier releases, or other implementations, may have written one.
    """
    for segment in log.segments.from_offset(start):
        for header, batch in _of_producers(segment, start):
            try:
                aborted = update_producers(producers, header, batch)
            except KafkaError as error:
                name, offset = segment.file.log_path, header[BASE_OFFSET]
                logger.error("%s: the control batch at offset %d ends no transaction: %s", name, offset, error)
                continue
            if aborted is not None:
                yield segment, aborted
        if segment is last:
            return


def _of_producers(segment: Segment, start: int) -> Iterator[tuple[Header, memoryview]]:
    """Yield header and bytes of the batches with a producer id, from the one that contains `start` on."""
    buffer, unpack = segment.file.view(), INT64.unpack_from
    for position, following, _, _ in segment.from_offset(start, headers_only=True):
        if unpack(buffer, position + PRODUCER_ID_AT)[0] >= 0:
            segment.file.check(position, following)
            yield HEADER.unpack_from(buffer, position), buffer[position:following]


def update_producers(producers: ProducerStates, header: Header, batch: memoryview) -> AbortedTxn | None:
    """Update the producer states with a batch in the log; leader, follower and recovery all use this function."""
    first, producer_id, epoch = header[BASE_OFFSET], header[PRODUCER_ID], header[PRODUCER_EPOCH]
    if header[ATTRIBUTES] & CONTROL_BIT:
        if header[COUNT] <= 0:  # compaction emptied the batch: no batch of the transaction is left
            return None
        marker, timestamp = read_marker(BatchView(batch))
        return producers.end_transaction(producer_id, epoch, marker, first, timestamp)
    transactional = header[ATTRIBUTES] & TRANSACTIONAL_BIT != 0
    last, sequence = first + header[LAST_OFFSET_DELTA], header[BASE_SEQUENCE]
    producers.update(producer_id, epoch, sequence, first, last, header[MAX_TIMESTAMP], transactional)
    return None


def read_marker(batch: BatchView) -> tuple[EndTxnMarker, int]:
    """Read the marker in a control batch, and its timestamp.

    Key: version i16, type i16. Value: version i16, coordinator epoch i32 (later versions may have more fields).

    Raises:
        KafkaError: INVALID_RECORD.
    """
    record = batch.records()[0]
    key, value = record.key or b"", record.value or b""
    kind = int.from_bytes(key[2:4], "big", signed=True)
    if len(key) < 4 or len(value) < 6 or kind not in (ControlType.ABORT, ControlType.COMMIT):
        raise KafkaError(ErrorCode.INVALID_RECORD, f"control record of type {kind} does not end a transaction")
    return EndTxnMarker(kind == ControlType.COMMIT, int.from_bytes(value[2:6], "big", signed=True)), record.timestamp
