"""What compaction keeps (`cleanup.policy=compact`): which segments, which records, and why. Pure.

Of every key below the cleaned end only the last record stays; offsets and order never change. Two passes: the dirty part
is read into a map from key to its last offset, then every segment from the start of the log is filtered by that map.

A tombstone stays until its delete horizon: the first pass that meets it writes "now + delete.retention.ms" into its batch
(KIP-534), a later one drops it. Records of aborted transactions go at once. A transaction's marker gets a horizon once no
batch of the transaction is left, and goes when that has passed.

Emptied batches go, but for two: the last one of a producer that is still active, because its sequence must survive, and
the last one of the pass, because the offset where the next segment begins must.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import md5
from heapq import heappop, heappush
from typing import NamedTuple

from protocol.records.batch import BatchView
from protocol.records.builder import rebuild_batch
from protocol.records.record import Record
from storage.config import LogConfig
from storage.producers import ProducerState
from storage.txn_index import AbortedTxn

# Keys this short stand for themselves in the map, longer ones are hashed; the digest of one is 16 bytes.
PLAIN_KEY_BYTES_MAX = 15
# About 100 bytes per entry in memory; more keys than this take several passes.
OFFSET_MAP_KEYS_MAX = 500_000


class SegmentFacts(NamedTuple):
    base_offset: int
    size: int
    index_bytes: int
    first_timestamp: int
    largest_timestamp: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A pass over the segments below `end`, of which those from `first_dirty` on were never cleaned."""

    first_dirty: int
    end: int  # base offset of the first segment that stays as it is
    clean_bytes: int
    dirty_bytes: int
    overdue: bool  # max.compaction.lag.ms has passed

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def due(self, config: LogConfig) -> bool:
        return self.dirty_bytes > 0 and (self.overdue or self.dirty_ratio > config.min_cleanable_dirty_ratio)


def make_plan(
    segments: Sequence[SegmentFacts],
    config: LogConfig,
    *,
    first_dirty: int,
    log_start_offset: int,
    log_end_offset: int,
    last_stable_offset: int,
    now_ms: int,
) -> Plan:
    """What could be cleaned now. The last of `segments` is the active one, which is never touched."""
    if not log_start_offset <= first_dirty <= log_end_offset:
        first_dirty = log_start_offset
    end = segments[-1].base_offset
    dirty = [s for i, s in enumerate(segments[:-1]) if segments[i + 1].base_offset > first_dirty]
    if config.min_compaction_lag_ms > 0:
        young = [s for s in dirty if s.largest_timestamp > now_ms - config.min_compaction_lag_ms]
        end = min([end, *(s.base_offset for s in young)])
    # Whole segments only: the one that holds the last stable offset stays.
    end = min(
        [end, *(s.base_offset for i, s in enumerate(segments[:-1]) if segments[i + 1].base_offset > last_stable_offset)]
    )
    cleaned = [s for s in segments if s.base_offset < end]
    dirty = [s for s in dirty if s.base_offset < end]
    oldest = min((s.first_timestamp for s in dirty if s.first_timestamp > 0), default=now_ms)
    dirty_bytes = sum(s.size for s in dirty)
    return Plan(
        first_dirty=first_dirty,
        end=end,
        clean_bytes=sum(s.size for s in cleaned) - dirty_bytes,
        dirty_bytes=dirty_bytes,
        overdue=oldest < now_ms - config.max_compaction_lag_ms,
    )


def group_segments(segments: Sequence[SegmentFacts], config: LogConfig, end: int) -> list[list[int]]:
    """Neighbours (as indexes) whose sizes together fit into one segment, and whose offsets can be relative to one base."""
    groups: list[list[int]] = []
    size = index_bytes = 0
    for i, segment in enumerate(segments):
        following = segments[i + 1].base_offset if i + 1 < len(segments) else end
        group = groups[-1] if groups else []
        fits = (
            bool(group)
            and size + segment.size <= config.segment_bytes
            and index_bytes + segment.index_bytes <= config.segment_index_bytes
            and following - 1 - segments[group[0]].base_offset < 2**31
        )
        if not fits:
            groups.append([])
            size = index_bytes = 0
        groups[-1].append(i)
        size += segment.size
        index_bytes += segment.index_bytes
    return groups


class OffsetMap:
    """key -> the last offset it was seen at."""

    __slots__ = ("_offsets", "keys_max", "latest_offset")

    def __init__(self, keys_max: int = OFFSET_MAP_KEYS_MAX) -> None:
        self.keys_max = keys_max
        self.latest_offset = -1
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def full(self) -> bool:
        return len(self._offsets) >= self.keys_max

    def put(self, key: bytes, offset: int) -> None:
        self._offsets[_token(key)] = offset

    def get(self, key: bytes) -> int:
        return self._offsets.get(_token(key), -1)


def _token(key: bytes) -> bytes:
    return bytes(key) if len(key) <= PLAIN_KEY_BYTES_MAX else md5(key, usedforsecurity=False).digest()


@dataclass(slots=True)
class TransactionsSeen:
    """Walks over batches in offset order and knows of each whether its transaction was aborted."""

    cleaned_index: list[AbortedTxn] = field(default_factory=list)  # aborted transactions of which batches are left
    _waiting: list[tuple[int, AbortedTxn]] = field(default_factory=list)
    _known: set[AbortedTxn] = field(default_factory=set)
    _aborted: dict[int, AbortedTxn] = field(default_factory=dict)  # by producer, from the first offset to the marker
    _with_batches: set[int] = field(default_factory=set)  # aborted ones of which a batch was seen
    _committed: set[int] = field(default_factory=set)  # producers of which a batch was seen, not aborted

    def add_aborted(self, transactions: Iterable[AbortedTxn]) -> None:
        for txn in transactions:
            if txn not in self._known:
                self._known.add(txn)
                heappush(self._waiting, (txn.first_offset, txn))

    def belongs_to_aborted(self, batch: BatchView) -> bool:
        self._begin_up_to(batch.last_offset)
        if not batch.is_transactional:
            return False
        if batch.producer_id in self._aborted:
            self._with_batches.add(batch.producer_id)
            return True
        self._committed.add(batch.producer_id)
        return False

    def marker_is_superfluous(self, batch: BatchView, commit: bool) -> bool:
        """Whether the marker in `batch` ends a transaction of which no batch is left."""
        self._begin_up_to(batch.last_offset)
        producer_id = batch.producer_id
        if commit:
            seen = producer_id in self._committed
            self._committed.discard(producer_id)
            return not seen
        txn = self._aborted.pop(producer_id, None)
        if txn is None or producer_id not in self._with_batches:
            return True
        self._with_batches.discard(producer_id)
        self.cleaned_index.append(txn)
        return False

    def _begin_up_to(self, offset: int) -> None:
        while self._waiting and self._waiting[0][0] <= offset:
            _, txn = heappop(self._waiting)
            self._aborted[txn.producer_id] = txn


@dataclass(frozen=True, slots=True)
class Keep:
    """What a pass decides by."""

    offsets: OffsetMap
    end: int
    now_ms: int
    delete_retention_ms: int
    last_of_producers: dict[int, tuple[int, int]]  # producer id -> (last data offset or -1, epoch)
    max_decompressed_bytes: int | None = None


def last_of_producers(states: Iterable[ProducerState]) -> dict[int, tuple[int, int]]:
    return {state.producer_id: (state.last_offset, state.epoch) for state in states}


def filtered(batch: BatchView, keep: Keep, transactions: TransactionsSeen, commit: bool | None) -> bytes | memoryview:
    """What stays of a batch: its own bytes, a smaller batch, or nothing. `commit` is None for an emptied marker."""
    if batch.is_control:
        if batch.producer_id < 0:
            return batch.buffer  # raft's own, not a transaction's marker
        superfluous = commit is None or transactions.marker_is_superfluous(batch, commit)
        expired = superfluous and batch.delete_horizon is not None and batch.delete_horizon <= keep.now_ms
        if not expired:
            if superfluous and batch.delete_horizon is None and batch.count:
                return rebuild_batch(batch, batch.records(), delete_horizon_ms=keep.now_ms + keep.delete_retention_ms)
            return batch.buffer
        return _emptied(batch, keep)
    if transactions.belongs_to_aborted(batch):
        return _emptied(batch, keep)
    records = batch.records(max_bytes=keep.max_decompressed_bytes)
    survivors = [record for record in records if _stays(record, batch, keep)]
    if not survivors:
        return _emptied(batch, keep)
    tombstones = batch.delete_horizon is None and any(record.value is None for record in survivors)
    if len(survivors) == len(records) and not tombstones:
        return batch.buffer
    horizon = keep.now_ms + keep.delete_retention_ms if tombstones else None
    return rebuild_batch(batch, survivors, delete_horizon_ms=horizon)


def _stays(record: Record, batch: BatchView, keep: Keep) -> bool:
    if record.offset > keep.offsets.latest_offset:
        return True
    if record.key is None or record.offset < keep.offsets.get(record.key):
        return False
    horizon = batch.delete_horizon
    return record.value is not None or horizon is None or keep.now_ms < horizon


def _emptied(batch: BatchView, keep: Keep) -> bytes | memoryview:
    last = keep.last_of_producers.get(batch.producer_id) if batch.producer_id >= 0 else None
    is_last_of_producer = last is not None and (
        batch.last_offset == last[0] if last[0] >= 0 else batch.is_control and batch.producer_epoch == last[1]
    )
    if is_last_of_producer or batch.next_offset == keep.end:
        return batch.buffer if batch.count == 0 else rebuild_batch(batch, [])
    return b""
