"""Markers: every partition of a prepared transaction gets one from its coordinator's broker, and the broker that leads it writes it.

The sender: partitions are grouped by the broker that leads them; this broker's own take the same path without the network. A
temporary failure is retried until it works or leadership of the transaction's own partition is lost; the next leader then
starts over, which may leave a second marker behind the first: readers do not mind (and version 2 refuses a stale one).
A partition that is no more needs no marker. Not here: what follows when all are written.

The writer, for WriteTxnMarkers of another broker or of this one: a marker of `__consumer_offsets` is written by the group
coordinator, because it completes pending offsets; all others are appended to their logs. A marker is written when it is committed
(acks=all). Which markers to write is the transaction coordinator's to know.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from ottla.broker.coordinator.outcome import Producer
from ottla.broker.coordinator.partition_log import TopicPartition
from ottla.broker.groups.group_coordinator_service import TOPIC as GROUP_METADATA_TOPIC
from ottla.broker.groups.group_coordinator_service import GroupCoordinatorService
from ottla.broker.replication.delayed_produce import DelayedProduce, Wait
from ottla.broker.replication.replicas import Replicas
from ottla.broker.transactions.transaction import Transaction, TransactionState, by_topic
from ottla.broker.transactions.transaction_stories import TransactionStories
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.shared_structs import TopicPartitionIndexes
from ottla.protocol.messages.write_txn_markers import WritableTxnMarker, WriteTxnMarkersRequest, WriteTxnMarkersResponse
from ottla.protocol.records.control import EndTxnMarker, end_txn_batch
from ottla.server.clock import Clock, TimerHandle, TimerWheel
from ottla.server.network.context import then
from ottla.server.story import because
from ottla.server.tasks import Spawn
from ottla.storage.errors import StorageFailure
from ottla.storage.log.log import Origin

log = logging.getLogger(__name__)

# The interval of retries while a leader is missing or cannot be reached. Kafka's sender looks again whenever its
# network thread wakes up; a new leader is usually there within some tens of milliseconds.
RETRY_MS = 50

NO_LEADER = -1

# The partition has a newer epoch of the producer, or of the coordinator: another coordinator is ending the transaction.
FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
# The partition's format has no transactions, so that it needs no marker.
NOT_NEEDED = frozenset({ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION})

Results: TypeAlias = dict[TopicPartition, ErrorCode]

ACKS_ALL = -1
# The transaction coordinator gets the error of a leader that is not ready, because it retries those.
GROUP_ERRORS = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}

#: The cause of what partitions' leaders answer.
MARKERS = because("WriteTxnMarkers")

WriteLocal: TypeAlias = Callable[[WritableTxnMarker, Callable[[Results], None]], None]


@dataclass(frozen=True, slots=True)
class MarkerRoutes:
    """The routes of markers to partitions: `leader_of` returns None for an unknown partition; `send` sends to another broker."""

    node_id: int
    leader_of: Callable[[TopicPartition], int | None]
    write_local: WriteLocal
    send: Callable[[int, object], Awaitable[Any]]
    spawn: Spawn
    clock: Clock


class MarkerSending:
    """The markers of one transaction. `done` is called when all of them are written, `refused` when one is, for good."""

    def __init__(
        self,
        routes: MarkerRoutes,
        transaction: Transaction,
        coordinator_epoch: int,
        done: Callable[[], None],
        refused: Callable[[], None],
        stories: TransactionStories,
    ) -> None:
        self.transaction = transaction
        self.left = set(transaction.partitions)
        self._routes = routes
        self._coordinator_epoch = coordinator_epoch
        self._refused = refused
        self._story = stories.logger_of(transaction.transactional_id, log, MARKERS)
        self._done: Callable[[], None] | None = done
        self._in_flight: set[TopicPartition] = set()
        self._retry: TimerHandle | None = None
        self._said: dict[TopicPartition, ErrorCode] = {}

    def start(self) -> None:
        """Send the markers that are not in flight; complete at once if none is left."""
        self._retry = None
        by_leader: dict[int, list[TopicPartition]] = {}
        for tp in sorted(self.left - self._in_flight):
            leader = self._routes.leader_of(tp)
            if leader is None:
                self._story.info("%s: no marker for %s-%d, which is gone", self.transaction.transactional_id, *tp)
                self.left.discard(tp)
            elif leader == NO_LEADER:
                self._retry_later()
            else:
                by_leader.setdefault(leader, []).append(tp)
        for leader, partitions in by_leader.items():
            self._in_flight.update(partitions)
            marker = self._marker(partitions)
            if leader == self._routes.node_id:
                self._write_here(marker, partitions)
            else:
                self._routes.spawn(self._send(leader, marker, partitions), "write-txn-markers")
        self._check_done()

    def stop(self) -> None:
        """Stop: another coordinator owns this transaction."""
        self._done = None
        if self._retry is not None:
            self._retry.cancel()

    def _write_here(self, marker: WritableTxnMarker, partitions: list[TopicPartition]) -> None:
        try:
            self._routes.write_local(marker, partial(self._answered, partitions))
        except Exception:
            self._failed(partitions)

    def _failed(self, partitions: list[TopicPartition]) -> None:
        """Retry after an internal error, because only this task completes the transaction while this broker is its coordinator."""
        log.exception("%s: no marker was written to %s", self.transaction.transactional_id, partitions)
        self._answered(partitions, {})

    async def _send(self, leader: int, marker: WritableTxnMarker, partitions: list[TopicPartition]) -> None:
        results: Results = {}
        try:
            response: WriteTxnMarkersResponse = await self._routes.send(
                leader, WriteTxnMarkersRequest(markers=[marker])
            )
            for answer in response.markers:
                for topic in answer.topics:
                    for result in topic.partitions:
                        results[topic.name, result.partition_index] = ErrorCode(result.error_code)
        except KafkaError as error:
            log.info("no answer about markers from broker %d: %s", leader, error)
        except Exception:
            self._failed(partitions)
            return
        self._answered(partitions, results)

    def _answered(self, partitions: Iterable[TopicPartition], results: Results) -> None:
        self._in_flight.difference_update(partitions)
        if self._done is None:
            return
        for tp in partitions:
            error = results.get(tp, ErrorCode.NETWORK_EXCEPTION)
            if error == ErrorCode.NONE or error in NOT_NEEDED:
                self.left.discard(tp)
            elif error in FENCED:
                self._story.warning(
                    "%s: marker for %s-%d refused: %s", self.transaction.transactional_id, *tp, error.name
                )
                self.stop()
                self._refused()
                return
            else:
                if self._said.get(tp) is not error:  # a full disk refuses it 20 times a second
                    self._said[tp] = error
                    self._story.info(
                        "%s: marker for %s-%d failed, again: %s", self.transaction.transactional_id, *tp, error.name
                    )
                self._retry_later()
        self._check_done()

    def _retry_later(self) -> None:
        if self._retry is None:
            self._retry = self._routes.clock.call_later(RETRY_MS, self.start)

    def _check_done(self) -> None:
        if not self.left and self._done is not None:
            done, self._done = self._done, None
            done()

    def _marker(self, partitions: list[TopicPartition]) -> WritableTxnMarker:
        transaction = self.transaction
        return WritableTxnMarker(
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            transaction_result=transaction.state is TransactionState.PREPARE_COMMIT,
            topics=[TopicPartitionIndexes(name, indexes) for name, indexes in by_topic(partitions).items()],
            coordinator_epoch=self._coordinator_epoch,
            transaction_version=transaction.client_transaction_version,
        )


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
        if partition.flushes and partition.wants_flush:
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
