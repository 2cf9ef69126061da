"""The indexes and producer snapshots of a segment as kafka-dump-log prints and checks them."""

from __future__ import annotations

import argparse
import os
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ottla.cli.shims.tool import Unusable
from ottla.protocol.records.batch import BatchView
from ottla.storage.errors import CorruptFile
from ottla.storage.files import Files
from ottla.storage.log_files import (
    ABORTED_VERSION,
    aborted_txns,
    base_offset,
    mapped_file,
    offset_entries,
    spans,
    time_entries,
)
from ottla.storage.producers import producer_snapshots
from ottla.storage.producers.producer_states import NO_OFFSET
from ottla.storage.segment.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES

NOTHING = -1

Pairs = list[tuple[int, int]]


@dataclass
class Mismatches:
    """Mismatches between the dumped files, by absolute path. They are printed after all files."""

    positions: dict[str, dict[int, int]] = field(default_factory=dict)
    times: dict[str, Pairs] = field(default_factory=dict)
    unordered: dict[str, Pairs] = field(default_factory=dict)
    missing: dict[str, Pairs] = field(default_factory=dict)
    gaps: dict[str, dict[int, int]] = field(default_factory=dict)

    def print(self) -> None:
        positions = {path: sorted(found.items(), reverse=True) for path, found in self.positions.items()}
        gaps = {path: sorted(found.items()) for path, found in self.gaps.items()}
        _show("Mismatches in :", positions, "  Index offset: {}, log offset: {}")
        _show("Found timestamp mismatch in :", self.times, "  Index timestamp: {}, log timestamp: {}")
        unordered = "  Index timestamp: {}, Previously indexed timestamp: {}"
        _show("Found out of order timestamp in :", self.unordered, unordered)
        missing = "Indexed offset: {}, found log offset: {}"
        _show("The following indexed offsets are not found in :", self.missing, missing)
        _show("Non-consecutive offsets in ", gaps, "  {} is followed by {}")


def _show(head: str, found: dict[str, Pairs], line: str) -> None:
    for path, pairs in found.items():
        print(f"{head}{path}", file=sys.stderr)
        for pair in pairs:
            print(line.format(*pair), file=sys.stderr)


def offset_in_name(path: str) -> int:
    """Return the offset in the name of a file.

    Raises:
        Unusable: the name is no offset.
    """
    if (found := base_offset(path)) is None:
        stem = os.path.basename(path).partition(".")[0]
        raise Unusable(f'java.lang.NumberFormatException: For input string: "{stem}"')
    return found


def _beside(path: str, suffix: str) -> str:
    return os.path.join(os.path.dirname(os.path.abspath(path)), os.path.basename(path).partition(".")[0] + suffix)


def _batches(view: memoryview, position: int) -> Iterator[BatchView]:
    return (BatchView(view, start) for start, _ in spans(view, position))


def _offset_entries(files: Files, path: str) -> list[tuple[int, int]]:
    """Return offsets and positions. For Kafka's tool an index that is only preallocated space has one entry, its base offset."""
    data = files.read(path) or b""
    found = list(offset_entries(data, base_offset(path) or 0))
    return found or ([(offset_in_name(path), 0)] if len(data) >= OFFSET_ENTRY_BYTES else [])


def _dump_offset_index(files: Files, path: str, options: argparse.Namespace, wrong: Mismatches) -> None:
    with mapped_file(files, _beside(path, ".log")) as log:
        entries = _offset_entries(files, path)
        if not entries:
            print(f"{path} is empty.")
            return
        if options.index_sanity_check:
            _check_size(files, path, OFFSET_ENTRY_BYTES)
            print(f"{path} passed sanity check.")
            return
        for offset, position in entries:
            first = next(_batches(log, position), None)
            if first is None:
                raise Unusable("java.util.NoSuchElementException")
            if first.last_offset != offset:
                wrong.positions.setdefault(os.path.abspath(path), {})[offset] = first.last_offset
            if not options.verify_index_only:
                print(f"offset: {offset} position: {position}")


def _check_size(files: Files, path: str, entry_bytes: int) -> None:
    size = files.size(path) or 0
    if size % entry_bytes:
        kind = "time index" if entry_bytes == TIME_ENTRY_BYTES else "Index"
        raise Unusable(
            f"{kind} file {os.path.abspath(path)} is corrupt, found {size} bytes which is neither positive nor a multiple"
            f" of {entry_bytes}"
        )


def _dump_time_index(files: Files, path: str, options: argparse.Namespace, wrong: Mismatches) -> None:
    data = files.read(path) or b""
    rows = list(time_entries(data, base_offset(path) or 0))
    if not rows and len(data) >= TIME_ENTRY_BYTES:
        rows = [(0, offset_in_name(path))]
    if options.index_sanity_check:
        _check_size(files, path, TIME_ENTRY_BYTES)
        _check_order(files, path, rows)
        print(f"{path} passed sanity check.")
        return
    absolute, before = os.path.abspath(path), NOTHING
    positions = _offset_entries(files, _beside(path, ".index"))
    with mapped_file(files, _beside(path, ".log")) as log:
        for timestamp, offset in rows:
            at = bisect_right([entry for entry, _ in positions], offset)
            start = positions[at - 1][1] if at else 0
            batch = next((found for found in _batches(log, start) if found.last_offset >= offset), None)
            if batch is None or batch.last_offset != offset:
                found_offset = NOTHING if batch is None else batch.last_offset
                wrong.missing.setdefault(absolute, []).append((offset, found_offset))
            else:
                newest = max((record.timestamp for record in batch.iter_records()), default=NOTHING)
                if newest != timestamp:
                    wrong.times.setdefault(absolute, []).append((timestamp, newest))
                if before >= timestamp:
                    wrong.unordered.setdefault(absolute, []).append((timestamp, before))
            if not options.verify_index_only:
                print(f"timestamp: {timestamp} offset: {offset}")
            before = timestamp


def _check_order(files: Files, path: str, rows: list[tuple[int, int]]) -> None:
    has_space_ahead = len(rows) * TIME_ENTRY_BYTES < (files.size(path) or 0)
    last = 0 if has_space_ahead else rows[-1][0] if rows else 0
    if rows and last < rows[0][0]:
        raise Unusable(
            f"Corrupt time index found, time index file ({os.path.abspath(path)}) has non-zero size but the last timestamp"
            f" is {last} which is less than the first timestamp {rows[0][0]}"
        )


def _dump_producers(files: Files, path: str, options: argparse.Namespace, wrong: Mismatches) -> None:
    try:
        states = producer_snapshots.decode(path, files.read(path) or b"")
    except CorruptFile as fault:
        print(fault, file=sys.stderr)
        return
    for state in states:
        first = state.current_txn_first_offset
        text = (
            f"producerId: {state.producer_id} producerEpoch: {state.epoch} coordinatorEpoch: {state.coordinator_epoch}"
            f" currentTxnFirstOffset: {'OptionalLong.empty' if first == NO_OFFSET else f'OptionalLong[{first}]'}"
            f" lastTimestamp: "
        )
        rows = [
            f"{batch.timestamp} firstSequence: {batch.first_sequence} lastSequence: {batch.last_sequence} lastOffset: {batch.last_offset}"
            f" offsetDelta: {batch.offset_delta} timestamp: {batch.timestamp}"
            for batch in state.batches
        ]
        for row in rows or [str(state.last_timestamp)]:
            print(text + row)


def _dump_aborted(files: Files, path: str, options: argparse.Namespace, wrong: Mismatches) -> None:
    for txn in aborted_txns(path, files.read(path) or b""):
        print(
            f"version: {ABORTED_VERSION} producerId: {txn.producer_id} firstOffset: {txn.first_offset}"
            f" lastOffset: {txn.last_offset} lastStableOffset: {txn.last_stable_offset}"
        )


DUMPS: dict[str, Callable[[Files, str, argparse.Namespace, Mismatches], None]] = {
    ".index": _dump_offset_index,
    ".timeindex": _dump_time_index,
    ".snapshot": _dump_producers,
    ".txnindex": _dump_aborted,
}
