"""The sender of markers: every partition of a prepared transaction gets one; failed writes are retried.

Partitions are grouped by the broker that leads them; this broker's own take the same path without the network. What fails
for now is tried again until it works or leadership of the transaction's own partition is lost; the next leader then starts
over, which may leave a second marker behind the first: readers do not mind (and version 2 refuses a stale one).
A partition that is no more needs no marker. Not here: what follows when all are written.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from ottla.broker.coordinator.partition_log import TopicPartition
from ottla.broker.transactions.transaction import Transaction, by_topic
from ottla.broker.transactions.transaction_states import State
from ottla.broker.transactions.write_markers import Results
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.shared_structs import TopicPartitionIndexes
from ottla.protocol.messages.write_txn_markers import WritableTxnMarker, WriteTxnMarkersRequest, WriteTxnMarkersResponse
from ottla.server.clock import Clock, TimerHandle
from ottla.server.tasks import Spawn

log = logging.getLogger(__name__)

# The interval of retries while a leader is missing or cannot be reached. Kafka's sender looks again whenever its
# network thread wakes up; a new leader is usually there within some tens of milliseconds.
RETRY_MS = 50

NO_LEADER = -1

# The partition has a newer epoch of the producer, or of the coordinator: another coordinator is ending the transaction.
FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
# The partition's format has no transactions, so that it needs no marker.
NOT_NEEDED = frozenset({ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION})

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
    ) -> None:
        self.transaction = transaction
        self.left = set(transaction.partitions)
        self._routes = routes
        self._coordinator_epoch = coordinator_epoch
        self._refused = refused
        self._done: Callable[[], None] | None = done
        self._in_flight: set[TopicPartition] = set()
        self._retry: TimerHandle | None = None

    def start(self) -> None:
        """Send the markers that are not in flight; complete at once if none is left."""
        self._retry = None
        by_leader: dict[int, list[TopicPartition]] = {}
        for tp in sorted(self.left - self._in_flight):
            leader = self._routes.leader_of(tp)
            if leader is None:
                log.info("%s: no marker for %s-%d, which is gone", self.transaction.transactional_id, *tp)
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
        """Stops: another coordinator owns this transaction."""
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
                log.warning("%s: marker for %s-%d refused: %s", self.transaction.transactional_id, *tp, error.name)
                self.stop()
                self._refused()
                return
            else:
                log.info("%s: marker for %s-%d failed, again: %s", self.transaction.transactional_id, *tp, error.name)
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
            transaction_result=transaction.state is State.PREPARE_COMMIT,
            topics=[TopicPartitionIndexes(name, indexes) for name, indexes in by_topic(partitions).items()],
            coordinator_epoch=self._coordinator_epoch,
            transaction_version=transaction.client_transaction_version,
        )
