"""Writes markers into the partitions that this broker leads, for WriteTxnMarkers of another broker or of this one.

A marker of `__consumer_offsets` is written by the group coordinator, because it completes pending offsets; all others are
appended to their logs. A marker is written when it is committed (acks=all). Which markers to write is the transaction coordinator's to know.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from ottla.broker.coordinator.outcome import Producer
from ottla.broker.coordinator.partition_log import TopicPartition
from ottla.broker.groups.group_coordinator_service import TOPIC as GROUP_METADATA_TOPIC
from ottla.broker.groups.group_coordinator_service import GroupCoordinatorService
from ottla.broker.replication.delayed_produce import DelayedProduce, Wait
from ottla.broker.replication.replicas import Replicas
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.write_txn_markers import WritableTxnMarker
from ottla.protocol.records.control import EndTxnMarker, end_txn_batch
from ottla.server.clock import Clock
from ottla.server.network.reply import then
from ottla.server.timer_wheel import TimerWheel
from ottla.storage.errors import StorageFailure
from ottla.storage.log.log import Origin
from ottla.storage.log_config import NEVER

Results: TypeAlias = dict[TopicPartition, ErrorCode]

ACKS_ALL = -1
# The transaction coordinator gets the error of a leader that is not ready, because it retries those.
GROUP_ERRORS = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}


class MarkerWriter:
    """Writes transaction markers; `timeout_ms` is how long a marker waits to be committed."""

    def __init__(
        self, replicas: Replicas, groups: GroupCoordinatorService, clock: Clock, wheel: TimerWheel, timeout_ms: int
    ) -> None:
        self._replicas = replicas
        self._groups = groups
        self._clock = clock
        self._wheel = wheel
        self._timeout_ms = timeout_ms

    def write(self, marker: WritableTxnMarker, done: Callable[[Results], None]) -> None:
        """Write the marker and call `done` with the outcome of each partition, at once if no append has to be waited for."""
        results: Results = {}
        waits: list[Wait] = []
        seen: set[TopicPartition] = set()
        appends_open = 1  # this call itself

        def append_done() -> None:
            nonlocal appends_open
            appends_open -= 1
            if not appends_open:
                done(results)

        for topic in marker.topics:
            for index in topic.partition_indexes:
                tp = (topic.name, index)
                if tp in seen:
                    continue  # one marker for each partition, as in Kafka
                seen.add(tp)
                if topic.name == GROUP_METADATA_TOPIC:
                    appends_open += 1
                    self._write_to_group(marker, tp, results, append_done)
                else:
                    self._append(marker, tp, results, waits)
        if waits:
            appends_open += 1
            DelayedProduce(waits, self._timeout_ms, self._wheel, append_done)
        append_done()

    def _append(self, marker: WritableTxnMarker, tp: TopicPartition, results: Results, waits: list[Wait]) -> None:
        partition = self._replicas.get(*tp)
        if partition is None:
            results[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return
        now_ms = self._clock.wall_ms()
        batch = end_txn_batch(
            committed=marker.transaction_result,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp=now_ms,
        )
        try:
            appended = partition.append(batch, ACKS_ALL, now_ms, Origin.COORDINATOR, marker.transaction_version)
        except KafkaError as error:
            results[tp] = error.code
            return
        except StorageFailure:
            results[tp] = ErrorCode.KAFKA_STORAGE_ERROR
            return
        results[tp] = ErrorCode.NONE
        fail = partial(results.__setitem__, tp)
        if not partition.is_committed(appended.last_offset):
            waits.append((partition.when_committed, appended.last_offset, fail))
        if partition.flush_messages != NEVER and partition.wants_flush:
            waits.append((partition.when_flushed, appended.last_offset, fail))

    def _write_to_group(
        self, marker: WritableTxnMarker, tp: TopicPartition, results: Results, append_done: Callable[[], None]
    ) -> None:
        def arrived(error: ErrorCode) -> None:
            results[tp] = GROUP_ERRORS.get(error, error)
            append_done()

        answer = self._groups.runtime.end_transaction(
            tp[1],
            Producer(marker.producer_id, marker.producer_epoch),
            EndTxnMarker(marker.transaction_result, marker.coordinator_epoch),
            marker.transaction_version,
        )
        then(answer, arrived)
