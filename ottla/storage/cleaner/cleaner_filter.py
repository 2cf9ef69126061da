"""The filter of the log cleaner: which records of each batch survive, and why. Pure.

A record of the dirty part stays if it is the last one of its key; a record of the clean part, if its key is not in the dirty
part. A tombstone stays until its delete horizon: the first pass that sees it writes "now + delete.retention.ms" into its
batch (KIP-534), a later one drops it. Records of aborted transactions are dropped at once. A transaction's marker gets a
delete horizon once no batch of the transaction is left, and is dropped when the horizon has passed.

Empty batches are dropped, with two exceptions: the last batch of an active producer, because its sequence number must
survive, and the last batch of the pass, because it holds the last offset before the next segment.

Records that stay are copied as they are: only a new delete horizon changes them, as their timestamps are relative to it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from hashlib import blake2b
from heapq import heappop, heappush
from struct import Struct

from ottla.protocol.primitives import varlong
from ottla.protocol.records.batch import CODEC_MASK, DELETE_HORIZON_BIT, LOG_APPEND_TIME_BIT, BatchView
from ottla.protocol.records.builder import pack_in_place_of, rebuild_batch
from ottla.protocol.records.compression import decompress
from ottla.protocol.records.record import (
    EncodedRecord,
    join_records,
    split_records,
    timestamp_delta,
    with_timestamp_delta,
)
from ottla.protocol.slotted import mutable
from ottla.storage.log.replay import read_marker
from ottla.storage.log_config import LogConfig
from ottla.storage.log_files import AbortedTxn

#: Two halves of the hash, and the ordinal.
SLOT_BYTES = 20
#: The upper limit of log.cleaner.io.buffer.load.factor: above it probing would take longer than another pass.
LOAD_FACTOR_MAX = 0.95
#: One sixth of the memory is for the bytes of the ordinals: with 4 records per key both parts are full at the same time.
_ORDINALS_SHARE = 6
_ORDINALS_MIN = 1024
_SLOTS_MIN = 32
_FREE = 0xFFFF_FFFF
_HALVES = Struct("<QQ")
#: The values of an ordinal's byte: a superseded record, the last record of a key with a value, and a tombstone.
GONE, VALUE, TOMBSTONE = 0, 1, 2


class OffsetMap:
    """The last record of every key in [first_offset, latest_offset], the dirty part of a log as far as it was read, in bounded memory.

    Kafka's SkimpyOffsetMap: open addressing over 16-byte hashes of the keys, 20 bytes a slot here (a Python dict takes 140).
    Two keys with the same hash would count as one key: with 5 million keys the probability is 10^-26, which Kafka accepts, too.

    Beside the table there is one byte for every record of the dirty part, by its ordinal in the order of the log: it says whether
    that record is the last one of its key. So for most batches of the dirty part the keys are not read a second time: a `count`
    over a slice shows whether all records of a batch survive, or none.
    """

    def __init__(self, first_offset: int, records: int, memory_bytes: int, load_factor: float = 0.9) -> None:
        """Make a map for `records` records, or for as many as fit into the memory."""
        span = min(max(records, 1), ordinals_max(memory_bytes))
        # Probes are short if half of the slots are free; few records need few slots.
        self._slots = max(min((memory_bytes - span) // SLOT_BYTES, 2 * span), _SLOTS_MIN)
        self.keys_max = int(self._slots * min(max(load_factor, 0.1), LOAD_FACTOR_MAX))
        self.keys = 0
        self.records = 0
        self.first_offset = first_offset
        self.latest_offset = first_offset - 1
        self.kinds = bytearray(span)
        self._high = array("Q", [0]) * self._slots
        self._low = array("Q", [0]) * self._slots
        self._ordinals = array("I", [_FREE]) * self._slots

    def has_room(self, records: int, keys: int) -> bool:
        return self.records + records <= len(self.kinds) and self.keys + keys <= self.keys_max

    def put_all(self, latest: Mapping[bytes, int]) -> None:
        """Add keys, each with twice its last ordinal, plus one for a tombstone. Ordinals grow from call to call."""
        high, low, ordinals, slots, kinds = self._high, self._low, self._ordinals, self._slots, self.kinds
        unpack, keys = _HALVES.unpack, self.keys
        for key, packed in latest.items():
            one, other = unpack(blake2b(key, digest_size=16).digest())
            slot = one % slots
            while (found := ordinals[slot]) != _FREE:
                if high[slot] == one and low[slot] == other:
                    kinds[found] = GONE
                    break
                slot = slot + 1 if slot + 1 < slots else 0
            else:
                high[slot] = one
                low[slot] = other
                keys += 1
            ordinal = packed >> 1
            ordinals[slot] = ordinal
            kinds[ordinal] = TOMBSTONE if packed & 1 else VALUE
        self.keys = keys

    def __contains__(self, key: bytes) -> bool:
        one, other = _HALVES.unpack(blake2b(key, digest_size=16).digest())
        slot = one % self._slots
        while self._ordinals[slot] != _FREE:
            if self._high[slot] == one and self._low[slot] == other:
                return True
            slot = slot + 1 if slot + 1 < self._slots else 0
        return False


def ordinals_max(memory_bytes: int) -> int:
    """Return the number of records of the dirty part that fit into one pass."""
    return min(max(memory_bytes // _ORDINALS_SHARE, _ORDINALS_MIN), _FREE - 1)


@mutable
class TransactionsSeen:
    """Receives batches in offset order and decides for each whether its transaction was aborted.

    Markers may be missing if retention removed their segments: an aborted transaction ends at its last offset nevertheless.
    """

    cleaned_index: list[AbortedTxn] = field(default_factory=list)  # aborted transactions of which batches are left
    _waiting: list[tuple[int, AbortedTxn]] = field(default_factory=list)
    _aborted: dict[int, AbortedTxn] = field(default_factory=dict)  # by producer, from the first offset to the marker
    _with_batches: set[int] = field(default_factory=set)  # aborted ones of which a batch was seen
    _committed: set[int] = field(default_factory=set)  # producers of which a batch was seen, not aborted

    def add_aborted(self, transactions: Iterable[AbortedTxn]) -> None:
        for txn in transactions:
            heappush(self._waiting, (txn.first_offset, txn))

    def belongs_to_aborted(self, batch: BatchView) -> bool:
        self._begin_up_to(batch.last_offset)
        if not batch.is_transactional:
            return False
        txn = self._aborted.get(batch.producer_id)
        if txn is not None and batch.base_offset < txn.last_offset:
            self._with_batches.add(batch.producer_id)
            return True
        self._committed.add(batch.producer_id)
        return False

    def marker_is_superfluous(self, batch: BatchView, commit: bool) -> bool:
        """Return True if the marker in `batch` ends a transaction of which no batch is left."""
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


def commits(batch: BatchView) -> bool | None:
    """Return True if a control batch commits, False if it aborts, None if it is not a transaction's marker."""
    if batch.count == 0 or batch.producer_id < 0:
        return None
    marker, _ = read_marker(batch)
    return marker.committed


@mutable
class Keep:
    """The inputs of a pass's decisions. `ordinal` is that of the next record of the dirty part (`OffsetMap`)."""

    offsets: OffsetMap
    end: int
    now_ms: int
    config: LogConfig
    last_of_producers: dict[int, tuple[int, int]]  # producer id -> (last data offset or -1, epoch)
    ordinal: int = 0

    def filtered(self, batch: BatchView, transactions: TransactionsSeen) -> bytes | memoryview:
        """Return the surviving part of a batch: its own bytes, a smaller batch, or nothing."""
        if batch.is_control:
            return self._marker(batch, transactions)
        if transactions.belongs_to_aborted(batch):
            return self._emptied(batch)
        offsets = self.offsets
        if batch.base_offset > offsets.latest_offset:
            return batch.buffer  # the offset map was full before this batch, which is not cleaned
        if batch.last_offset < offsets.first_offset:
            return self._of_clean_part(batch)
        start = self.ordinal
        self.ordinal = end = start + batch.count
        kinds = offsets.kinds[start:end]
        gone = kinds.count(GONE)
        if gone == batch.count:
            return self._emptied(batch)
        if not gone and TOMBSTONE not in kinds:
            return batch.buffer
        data, records = encoded_records(batch, self.config.max_decompressed_message_bytes)
        survivors = [record for record, kind in zip(records, kinds, strict=True) if kind != GONE]
        return self._with_survivors(batch, data, records, survivors)

    def _of_clean_part(self, batch: BatchView) -> bytes | memoryview:
        data, records = encoded_records(batch, self.config.max_decompressed_message_bytes)
        offsets = self.offsets
        survivors = [record for record in records if record.key is not None and record.key not in offsets]
        return self._with_survivors(batch, data, records, survivors)

    def _with_survivors(
        self, batch: BatchView, data: bytes, records: Sequence[EncodedRecord], survivors: list[EncodedRecord]
    ) -> bytes | memoryview:
        tombstones = any(record.is_tombstone for record in survivors)
        horizon = batch.delete_horizon
        if tombstones and horizon is not None and horizon <= self.now_ms:
            survivors = [record for record in survivors if not record.is_tombstone]
        if not survivors:
            return self._emptied(batch)
        if tombstones and horizon is None:
            return _rebuilt(batch, data, survivors, self.config, self.now_ms + self.config.delete_retention_ms)
        if len(survivors) == len(records):
            return batch.buffer
        return _rebuilt(batch, data, survivors, self.config, None)

    def _marker(self, batch: BatchView, transactions: TransactionsSeen) -> bytes | memoryview:
        if batch.producer_id < 0:
            return batch.buffer  # raft's own, not a transaction's marker
        commit = commits(batch)
        superfluous = commit is None or transactions.marker_is_superfluous(batch, commit)
        if superfluous and batch.delete_horizon is not None and batch.delete_horizon <= self.now_ms:
            return self._emptied(batch)
        if superfluous and batch.delete_horizon is None and batch.count:
            horizon = self.now_ms + self.config.delete_retention_ms
            return rebuild_batch(batch, batch.records(), delete_horizon_ms=horizon)
        return batch.buffer

    def _emptied(self, batch: BatchView) -> bytes | memoryview:
        last = self.last_of_producers.get(batch.producer_id) if batch.producer_id >= 0 else None
        is_last_of_producer = last is not None and (
            batch.last_offset == last[0] if last[0] >= 0 else batch.is_control and batch.producer_epoch == last[1]
        )
        if is_last_of_producer or batch.next_offset == self.end:
            return batch.buffer if batch.count == 0 else rebuild_batch(batch, [])
        return b""


def encoded_records(batch: BatchView, bytes_max: int) -> tuple[bytes, list[EncodedRecord]]:
    """Return the decompressed payload of a batch, and the positions of the records in it."""
    if batch.count == 0:
        return b"", []
    payload = batch.payload
    data = decompress(batch.compression, payload, bytes_max) if batch.compression else bytes(payload)
    return data, split_records(data, batch.count, batch.last_offset_delta)


def _rebuilt(
    batch: BatchView, data: bytes, survivors: Sequence[EncodedRecord], config: LogConfig, horizon: int | None
) -> bytes:
    """Return the batch with the surviving records only. A `horizon` replaces the base timestamp."""
    attributes, base_timestamp = batch.attributes & ~CODEC_MASK, batch.base_timestamp
    timestamps = [base_timestamp + timestamp_delta(data, record) for record in survivors]
    if horizon is None:
        payload = join_records(data, survivors)
    else:
        attributes |= DELETE_HORIZON_BIT
        base_timestamp = horizon
        payload = b"".join(
            [
                with_timestamp_delta(data, record, varlong(timestamp - horizon))
                for record, timestamp in zip(survivors, timestamps, strict=True)
            ]
        )
    return pack_in_place_of(
        batch,
        payload,
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=batch.max_timestamp if attributes & LOG_APPEND_TIME_BIT else max(timestamps),
        count=len(survivors),
        compression=batch.compression,
        level=config.compression_level(batch.compression),
    )
