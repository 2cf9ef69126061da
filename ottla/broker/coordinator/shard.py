"""The interface of the runtime to a shard, which is the state that one partition of an internal topic describes; its records as bytes and
back; and its loading, from the start of the partition to its end.

How much of a load is done in one turn of the event loop is in `broker/coordinator/turns.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from ottla.broker.coordinator.outcome import CoordinatorRecord, Producer, Unasked
from ottla.broker.coordinator.partition_log import PartitionLog, TopicPartition
from ottla.protocol.errors import ProtocolError
from ottla.protocol.internal_topics.coordinator_records import (
    RecordTypes,
    UnknownRecord,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from ottla.protocol.records.batch import HEADER_BYTES, TRANSACTIONAL_BIT, BatchView, iter_batches
from ottla.protocol.records.builder import pack_batch
from ottla.protocol.records.control import ControlType
from ottla.protocol.records.record import encode_record

log = logging.getLogger(__name__)

# Kafka's offsets.load.buffer.size is 5 MB for a thread of its own. Here it is the number of bytes that are copied at a time, so
# that no view of the log's mapping is held from one turn to the next.
READ_BYTES = 256 * 1024


class UnreadableValue(Exception):
    """The value of a record cannot be decoded, though its key can."""

    def __init__(self, key: object, reason: Exception) -> None:
        super().__init__(f"{key}: {reason!r}")
        self.key = key


class Shard(Protocol):
    """Hard state (what the log says) changes in the two replay methods only; everything else may change soft state."""

    def replay(self, offset: int, producer_id: int, key: Any, value: Any) -> None:
        """Apply one record; `value` None is a tombstone; `producer_id` -1 unless part of a transaction."""
        ...

    def replay_failed(self, key: Any) -> None:
        """Note while loading that the newest record of the key cannot be decoded or applied.

        Requests for the key's group or transactional id are rejected until a later record of that key can be applied;
        everything else in the partition is served. A guess at the record's content could lose an offset or an epoch.
        """
        ...

    def replay_end_transaction_marker(self, producer_id: int, committed: bool) -> None:
        """Apply a control record that ends the producer's transaction."""
        ...

    def on_loaded(self, now_ms: int) -> Unasked:
        """Take over: all records are replayed, and this broker leads the partition. Rebuild timers, decide what cannot wait."""
        ...

    def on_unloaded(self) -> Unasked:
        """Leadership is lost: only `replies` of the outcome count."""
        ...


class RecordCodec:
    """Codec of a shard's records. Unknown record types are skipped when loading, so that a newer broker's survive (KIP-915)."""

    #: The types that the shard replays.
    types: ClassVar[RecordTypes]

    def version_of(self, value: Any) -> int:
        """Return the version in which the value is written."""
        return 0

    def current(self, key: Any, value: Any) -> CoordinatorRecord:
        """Return the record as the shard replays it; one of an older format is converted."""
        return key, value

    def encode(self, key: object, value: object) -> tuple[bytes, bytes | None]:
        return encode_key(key), None if value is None else encode_value(value, self.version_of(value))

    def decode(self, key: bytes | memoryview, value: bytes | memoryview | None) -> CoordinatorRecord | None:
        """Return the record's value; None for a record of an unknown type, `UnreadableValue` for a value that is malformed or of an unknown
        version.
        """
        try:
            known_key = decode_key(self.types, key)
        except UnknownRecord:
            return None
        try:
            return self.current(known_key, None if value is None else decode_value(self.types, known_key, value))
        except ProtocolError as error:
            raise UnreadableValue(self.current(known_key, None)[0], error) from error

    def batches(
        self,
        records: Sequence[CoordinatorRecord],
        now_ms: int,
        bytes_max: int | None,
        producer: Producer | None = None,
    ) -> Iterator[tuple[bytes, Sequence[CoordinatorRecord]]]:
        """Yield batches with their records: one batch, or as many as `bytes_max` requires.

        The batches are not compressed, as by Kafka's default of offsets.topic.compression.codec: most hold one small record.
        """
        pieces: list[bytes] = []
        size, start = HEADER_BYTES, 0
        for index, (key, value) in enumerate(records):
            encoded = encode_record(index - start, 0, *self.encode(key, value))
            if bytes_max is not None and pieces and size + len(encoded) > bytes_max:
                yield _batch(pieces, now_ms, producer), records[start:index]
                pieces, size, start = [], HEADER_BYTES, index
                encoded = encode_record(0, 0, *self.encode(key, value))
            pieces.append(encoded)
            size += len(encoded)
        yield _batch(pieces, now_ms, producer), records[start:] if start else records


def _batch(pieces: list[bytes], now_ms: int, producer: Producer | None) -> bytes:
    return pack_batch(
        b"".join(pieces),
        base_offset=0,
        leader_epoch=-1,
        attributes=0 if producer is None else TRANSACTIONAL_BIT,
        last_offset_delta=len(pieces) - 1,
        base_timestamp=now_ms,
        max_timestamp=now_ms,
        producer_id=-1 if producer is None else producer.producer_id,
        producer_epoch=-1 if producer is None else producer.producer_epoch,
        # A coordinator's sequences are not checked; Kafka writes 0.
        base_sequence=-1 if producer is None else 0,
        count=len(pieces),
    )


@dataclass(slots=True)
class LoadTimes:
    """The times that partitions took to load since the broker started."""

    count: int = 0
    sum_ms: int = 0
    max_ms: int = 0

    def add(self, duration_ms: int) -> None:
        self.count += 1
        self.sum_ms += duration_ms
        self.max_ms = max(self.max_ms, duration_ms)


class Loader:
    """Replays one shard's log: each step of `steps` replays one record, or one batch without records.

    Records of aborted transactions reach the shard too: it keeps them apart by producer id until their marker comes.
    """

    def __init__(self, partition_log: PartitionLog, tp: TopicPartition, codec: RecordCodec, shard: Shard) -> None:
        self._log = partition_log
        self._tp = tp
        self._codec = codec
        self._shard = shard
        self.offset = partition_log.start_offset(tp)
        self.is_stopped = False

    def steps(self) -> Iterator[None]:
        """Replay the log to its end in steps. After a stop the log is not read again, because it may be closed."""
        while not self.is_stopped:
            data = bytes(self._log.read(self._tp, self.offset, READ_BYTES))
            for batch in iter_batches(data):
                if batch.last_offset >= self.offset and not self.is_stopped:
                    yield from self._replay(batch)
                    self.offset = batch.last_offset + 1
            if not data or self.offset >= self._log.end_offset(self._tp):
                return

    def _replay(self, batch: BatchView) -> Iterator[None]:
        yield
        if batch.is_control:
            for record in batch.records():
                self._replay_control(batch.producer_id, record.key)
            return
        producer_id = batch.producer_id if batch.is_transactional else -1
        first_offset = self.offset
        for record in batch.records():
            if record.offset >= first_offset and record.key is not None:
                self._replay_record(producer_id, record.offset, record.key, record.value)
                yield

    def _replay_record(self, producer_id: int, offset: int, key: bytes, value: bytes | None) -> None:
        """Replay a record. If that fails, only the group or transactional id of its key is rejected, not the whole partition."""
        try:
            decoded = self._codec.decode(key, value)
        except UnreadableValue as error:
            log.exception("%s-%d: the record at offset %d cannot be read", *self._tp, offset)
            self._shard.replay_failed(error.key)
            return
        if decoded is None:
            # Written by a newer version of the broker; the record stays in the log for it (KIP-915).
            log.debug("%s-%d: record of unknown type at offset %d", *self._tp, offset)
            return
        try:
            self._shard.replay(offset, producer_id, *decoded)
        except Exception:
            log.exception("%s-%d: the record at offset %d cannot be replayed", *self._tp, offset)
            self._shard.replay_failed(decoded[0])

    def _replay_control(self, producer_id: int, key: bytes | None) -> None:
        # Key of a control record: version i16, type i16.
        kind = int.from_bytes(key[2:4], "big") if key is not None and len(key) >= 4 else -1
        if kind in (ControlType.ABORT, ControlType.COMMIT):
            self._shard.replay_end_transaction_marker(producer_id, kind == ControlType.COMMIT)
