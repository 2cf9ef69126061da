"""Loading a shard: reading its partition from start to end and replaying every record, some batches at a time.

Records of aborted transactions reach the shard too: it keeps them apart by producer id until their marker comes.
"""

from __future__ import annotations

import logging

from broker.coordinator.partition_log import PartitionLog, TopicPartition
from broker.coordinator.shard import RecordCodec, Shard
from protocol.records.batch import BatchView, iter_batches

log = logging.getLogger(__name__)

# Kafka's offsets.load.buffer.size is 5 MB for a thread of its own; here the event loop does the work, and 256 KB is
# some milliseconds of it.
STEP_BYTES = 256 * 1024
CONTROL_ABORT, CONTROL_COMMIT = 0, 1


class Loader:
    """`step()` until it says that the end of the log is reached."""

    def __init__(self, partition_log: PartitionLog, tp: TopicPartition, codec: RecordCodec, shard: Shard) -> None:
        self._log = partition_log
        self._tp = tp
        self._codec = codec
        self._shard = shard
        self.offset = partition_log.start_offset(tp)
        self.records = 0

    def step(self) -> bool:
        """Replay some batches; True when there is nothing more to read."""
        data = self._log.read(self._tp, self.offset, STEP_BYTES)
        for batch in iter_batches(data):
            if batch.last_offset >= self.offset:
                self._replay(batch)
                self.offset = batch.last_offset + 1
        return self.offset >= self._log.end_offset(self._tp) or not len(data)

    def _replay(self, batch: BatchView) -> None:
        records = batch.records()
        if batch.is_control:
            for record in records:
                self._replay_control(batch.producer_id, record.key)
            return
        producer_id = batch.producer_id if batch.is_transactional else -1
        for record in records:
            if record.offset < self.offset or record.key is None:
                continue
            decoded = self._codec.decode(record.key, record.value)
            if decoded is None:
                # Written by a newer version of the broker; the record stays in the log for it (KIP-915).
                log.debug("%s-%d: record of unknown type at offset %d", *self._tp, record.offset)
                continue
            self._shard.replay(record.offset, producer_id, *decoded)
            self.records += 1

    def _replay_control(self, producer_id: int, key: bytes | None) -> None:
        # Key of a control record: version i16, type i16.
        kind = int.from_bytes(key[2:4], "big") if key is not None and len(key) >= 4 else -1
        if kind in (CONTROL_ABORT, CONTROL_COMMIT):
            self._shard.replay_end_transaction_marker(producer_id, kind == CONTROL_COMMIT)
