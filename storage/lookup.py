"""Finding things in a log: by timestamp, by transaction, by replay. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from protocol.records.batch import BatchView
from storage.segment import Segment
from storage.txn_index import AbortedTxn

if TYPE_CHECKING:
    from storage.log import Log


def batches(log: Log, start: int, end: int) -> Iterator[BatchView]:
    position_from = max(start, log.log_start_offset)
    for segment in log.segments.from_offset(position_from):
        if segment.base_offset >= min(end, log.log_end_offset):
            return
        for position, following, base, last in segment.from_offset(position_from):
            if base >= end:
                return
            if last >= position_from:
                yield BatchView(segment.view()[position:following])


def aborted_transactions(log: Log, start: int, end: int) -> list[AbortedTxn]:
    found: list[AbortedTxn] = []
    for segment in log.segments.from_offset(start):
        if segment.txn_index.collect(log.files, start, end, found):
            break
    return found


def offset_for_timestamp(log: Log, timestamp: int) -> tuple[int, int, int] | None:
    start = log.log_start_offset
    for segment in log.segments.from_offset(start):
        if segment.largest_timestamp().timestamp < timestamp:
            continue
        for batch in _views(segment, max(segment.offset_before(timestamp), start)):
            if batch.max_timestamp < timestamp or batch.last_offset < start:
                continue
            for record in batch.records(max_bytes=log.config.max_decompressed_message_bytes):
                if record.timestamp >= timestamp and record.offset >= start:
                    return record.timestamp, record.offset, batch.partition_leader_epoch
    return None


def max_timestamp(log: Log) -> tuple[int, int, int] | None:
    best: tuple[int, Segment, int] | None = None
    for segment in log.segments.from_offset(log.log_start_offset):
        largest = segment.largest_timestamp()
        if largest.timestamp >= 0 and (best is None or largest.timestamp > best[0]):
            best = (largest.timestamp, segment, largest.offset)
    if best is None:
        return None
    timestamp, segment, offset = best
    for batch in _views(segment, offset):
        for record in batch.records(max_bytes=log.config.max_decompressed_message_bytes):
            if record.timestamp == timestamp:
                return timestamp, record.offset, batch.partition_leader_epoch
    return None


def _views(segment: Segment, offset: int) -> Iterator[BatchView]:
    for position, following, _, _ in segment.from_offset(offset):
        yield BatchView(segment.view()[position:following])
