"""Loading shards: reading their partitions from start to end and replaying every record, one shard of a broker after the other.

How much of it is done in one turn of the event loop is in `broker/coordinator/turns.py`.

Records of aborted transactions reach the shard too: it keeps them apart by producer id until their marker comes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from ottla.broker.coordinator.partition_log import PartitionLog, TopicPartition
from ottla.broker.coordinator.shard import RecordCodec, Shard, UnreadableValue
from ottla.protocol.records.batch import BatchView, iter_batches

log = logging.getLogger(__name__)

# Kafka's offsets.load.buffer.size is 5 MB for a thread of its own. Here it is what is copied at a time, so that no view
# of the log's mapping is held from one turn to the next.
READ_BYTES = 256 * 1024
CONTROL_ABORT, CONTROL_COMMIT = 0, 1


class Loader:
    """Replays one shard's log: each step of `steps` replays one record, or one batch without records."""

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
        if kind in (CONTROL_ABORT, CONTROL_COMMIT):
            self._shard.replay_end_transaction_marker(producer_id, kind == CONTROL_COMMIT)
