"""Runs compaction: reads the dirty part of a log into a map, rewrites its segments, swaps the new ones in.

A pass is an iterator that yields after every slice of work, so that whoever drives it decides when to go on; appends and
reads go on in between, because only sealed segments are touched. New segments are written as `.cleaned`, flushed, renamed
to `.swap`, and take their names when the old ones are out of the way: a crash at any point leaves the old segments, the
new ones, or a swap that recovery finishes. What stays is decided in `cleaner_plan`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from protocol.errors import KafkaError
from protocol.records.batch import HEADER, BatchView
from storage import changes, checkpoint, producer_snapshot
from storage.cleaner_plan import (
    Keep,
    OffsetMap,
    Plan,
    SegmentFacts,
    TransactionsSeen,
    filtered,
    group_segments,
    last_of_producers,
    make_plan,
)
from storage.errors import CorruptFile, DiskFull, StorageFailure
from storage.log import Log
from storage.logs import Logs
from storage.replicate import read_marker
from storage.segment import CLEANED_SUFFIX, SWAP_SUFFIX, Segment, segment_path

logger = logging.getLogger(__name__)

# About 5 ms of work: the loop that drives the cleaner has clients to serve in between.
SLICE_BYTES = 64 << 10
# Small batches cost more than their bytes; counted so, a slice is at most a few hundred of them.
BATCH_COST_BYTES = 200


class LogChanged(Exception):
    """The log was truncated, deleted or closed under a pass; what the pass wrote is dropped."""


class Cleaner:
    """Chooses the dirtiest log and cleans it; remembers how far each log is clean (`cleaner-offset-checkpoint`)."""

    def __init__(self, logs: Logs, keys_max: int | None = None) -> None:
        self._logs = logs
        self._keys_max = keys_max
        self._clean_until: dict[tuple[str, int], int] = {}
        self._uncleanable: set[tuple[bytes, int]] = set()

    def load(self) -> None:
        for directory in self._logs.directories:
            if directory.online:
                try:
                    self._clean_until |= checkpoint.read_offsets(
                        self._logs.files, f"{directory.path}/{checkpoint.CLEANER}"
                    )
                except CorruptFile as error:
                    logger.warning("%s: every log counts as never cleaned", error)

    def next_due(self, now_ms: int) -> tuple[Log, Plan] | None:
        """The log with the greatest dirty ratio among those that are due."""
        best: tuple[Log, Plan] | None = None
        for log in self._logs:
            if not log.config.compact or log.failure is not None or (log.topic_id, log.partition) in self._uncleanable:
                continue
            plan = plan_for(log, self._clean_until.get((log.topic, log.partition), 0), now_ms)
            if plan.due(log.config) and (best is None or plan.dirty_ratio > best[1].dirty_ratio):
                best = (log, plan)
        return best

    def run(self, now_ms: int) -> Iterator[None]:
        """One pass over the log that needs it most; yields after every slice. Nothing due: ends at once."""
        due = self.next_due(now_ms)
        if due is None:
            return
        log, plan = due
        offsets = OffsetMap(self._keys_max) if self._keys_max else OffsetMap()
        try:
            yield from clean(log, plan, now_ms, offsets)
        except LogChanged:
            return
        except (KafkaError, CorruptFile) as error:
            # Its records cannot be read: trying again would not help, and other logs are waiting.
            logger.error("%s cannot be compacted: %s", log, error)
            self._uncleanable.add((log.topic_id, log.partition))
            return
        except DiskFull as failure:
            logger.warning("compaction of %s waits for room: %s", log, failure)
            return
        self._clean_until[(log.topic, log.partition)] = min(offsets.latest_offset + 1, plan.end)
        self._write()

    def _write(self) -> None:
        for directory in self._logs.directories:
            if directory.online:
                names = {(log.topic, log.partition) for log in self._logs.in_directory(directory)}
                offsets = {name: offset for name, offset in self._clean_until.items() if name in names}
                checkpoint.write_offsets(self._logs.files, f"{directory.path}/{checkpoint.CLEANER}", offsets)


def plan_for(log: Log, first_dirty: int, now_ms: int) -> Plan:
    return make_plan(
        [_facts(segment) for segment in log.segments],
        log.config,
        first_dirty=first_dirty,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        last_stable_offset=log.last_stable_offset,
        now_ms=now_ms,
    )


def _facts(segment: Segment) -> SegmentFacts:
    return SegmentFacts(
        segment.base_offset,
        segment.size,
        len(segment.indexes.offsets) * 8,
        segment.first_timestamp(),
        segment.largest_timestamp().timestamp,
    )


def clean(log: Log, plan: Plan, now_ms: int, offsets: OffsetMap) -> Iterator[None]:
    """One pass. Raises LogChanged when the log is no longer what the plan was made for."""
    yield from _fill_map(log, plan, offsets)
    end = offsets.latest_offset + 1
    segments = [segment for segment in log.segments if segment.base_offset < min(end, plan.end)]
    keep = Keep(
        offsets=offsets,
        end=plan.end,
        now_ms=now_ms,
        delete_retention_ms=log.config.delete_retention_ms,
        last_of_producers=last_of_producers(log.producers),
        max_decompressed_bytes=log.config.max_decompressed_message_bytes,
    )
    transactions = TransactionsSeen()
    for group in group_segments([_facts(segment) for segment in segments], log.config, plan.end):
        yield from _clean_group(log, [segments[i] for i in group], keep, transactions)


def _fill_map(log: Log, plan: Plan, offsets: OffsetMap) -> Iterator[None]:
    transactions = TransactionsSeen()
    transactions.add_aborted(log.aborted_transactions(plan.first_dirty, plan.end))
    work = 0
    for batch in log.batches(plan.first_dirty, plan.end):
        if batch.is_control:
            if (commit := _commits(batch)) is not None:
                transactions.marker_is_superfluous(batch, commit)
        elif not transactions.belongs_to_aborted(batch):
            for record in batch.records(max_bytes=log.config.max_decompressed_message_bytes):
                if record.key is not None and record.offset >= plan.first_dirty:
                    offsets.put(record.key, record.offset)
        offsets.latest_offset = batch.last_offset
        if offsets.full:
            return
        work += batch.size + BATCH_COST_BYTES
        if work >= SLICE_BYTES:
            work = 0
            yield
            if log.closed:
                raise LogChanged
    offsets.latest_offset = max(offsets.latest_offset, plan.end - 1)


def _clean_group(log: Log, group: list[Segment], keep: Keep, transactions: TransactionsSeen) -> Iterator[None]:
    cleaned = Segment(
        log.files,
        log.mappings,
        log.directory,
        group[0].base_offset,
        log.config,
        size=0,
        active=True,
        now_ms=keep.now_ms,
        suffix=CLEANED_SUFFIX,
    )
    cleaned.create_files()
    transactions.cleaned_index = []
    try:
        for segment in group:
            yield from _clean_into(log, segment, cleaned, keep, transactions)
        for txn in transactions.cleaned_index:
            cleaned.txn_index.append(log.files, txn)
        cleaned.seal()
        cleaned.flush()
        _check_unchanged(log, group)
        _swap(log, group, cleaned)
    except BaseException:  # also when the driver gives up: GeneratorExit
        if cleaned not in list(log.segments):
            cleaned.removed = True
            cleaned.unmap()
            for name in cleaned.file_names():
                if name.endswith(CLEANED_SUFFIX):
                    log.files.remove(name)
        raise


def _clean_into(
    log: Log, source: Segment, target: Segment, keep: Keep, transactions: TransactionsSeen
) -> Iterator[None]:
    following = source.last_offset()
    if following is not None:
        transactions.add_aborted(log.aborted_transactions(source.base_offset, following + 1))
    view, position, work = source.view(), 0, 0
    while position < source.size:
        batch = BatchView(view, position)
        kept = filtered(batch, keep, transactions, _commits(batch) if batch.is_control else None)
        if len(kept):
            target.make_room(len(kept))
            target.append_all(memoryview(kept), [HEADER.unpack_from(kept, 0)])
        position += batch.size
        work += batch.size + BATCH_COST_BYTES
        if work >= SLICE_BYTES:
            work = 0
            yield
            _check_unchanged(log, [source])


def _commits(batch: BatchView) -> bool | None:
    """Whether a control batch commits; None when it is not a transaction's marker."""
    if batch.count == 0 or batch.producer_id < 0:
        return None
    marker, _ = read_marker(batch)
    return marker.commit


def _check_unchanged(log: Log, segments: list[Segment]) -> None:
    if log.closed or any(segment.removed or segment.active for segment in segments):
        raise LogChanged


def _swap(log: Log, old: list[Segment], cleaned: Segment) -> None:
    try:
        cleaned.change_suffix(SWAP_SUFFIX)
        log.files.sync_dir(log.directory)
        ids = {id(segment) for segment in old}
        remaining = [segment for segment in log.segments if id(segment) not in ids]
        at = sum(segment.base_offset < cleaned.base_offset for segment in remaining)
        # Renamed away before the new one takes a name of theirs; one step for readers, who run on this thread.
        changes.delete_segments(log, old)
        cleaned.change_suffix("")
        log.segments.replace([*remaining[:at], cleaned, *remaining[at:]])
        bases = {segment.base_offset for segment in old[1:]}
        for snapshot in [offset for offset in log.snapshots if offset in bases]:
            log.files.remove(segment_path(log.directory, snapshot, producer_snapshot.SUFFIX))
            log.snapshots.remove(snapshot)
        log.files.sync_dir(log.directory)
    except StorageFailure as failure:
        log.fail(failure)
        raise
