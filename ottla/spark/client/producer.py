"""A blocking producer. It is idempotent (KIP-98); with a transactional id it has a transaction that another process may end.

Only transactional id, producer id and epoch are needed to end a transaction, so an executor can fill it and the driver can
commit it, as Flink's sink does after a restart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ottla.client.idempotence import (
    ADD_VERSION,
    END_VERSION,
    FENCED,
    INIT_VERSION,
    BatchVerdict,
    IdempotentBatches,
    ProducerIdentity,
    add_partitions,
    produce_request,
    produced,
    record_bytes,
    refused_partitions,
)
from ottla.client.partitions import TopicPartition
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.records.record import NewRecord
from ottla.spark.client.cluster import TRANSACTION, BlockingCluster
from ottla.spark.client.connection import SparkConnection
from ottla.spark.errors import ConnectionLost, ConnectorError, check

#: The bytes of records at which all collected records are sent.
PENDING_BYTES_MAX = 8 * 1024 * 1024
_REQUEST_MS_MAX = 30_000
#: The last version with names of topics in place of ids, in which transactions are as before KIP-890.
_PRODUCE_VERSION_MAX = 11
#: The coordinator's error while the former transaction is still being completed.
_BUSY = (ErrorCode.CONCURRENT_TRANSACTIONS,)
#: EndTxn's errors if the transaction has ended in another way: by its timeout, or by a later producer with the same id.
ABORTED = (*FENCED, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING)

#: A row: key, value, timestamp in milliseconds, headers.
Row = tuple[bytes | None, bytes | None, int, Sequence[tuple[str, bytes | None]]]


class SinkTransaction(NamedTuple):
    """An open transaction, with what any process needs to end it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class WrittenTransaction(NamedTuple):
    """A transaction and the offset of one of its batches. With these the log shows how it ended (`outcomes`)."""

    transaction: SinkTransaction
    place: TopicPartition
    offset: int


class BlockingProducer:
    """Collects rows and sends them to the leaders of their partitions.

    Each batch is sent until all in-sync replicas have acknowledged it.
    """

    def __init__(
        self, cluster: BlockingCluster, codec: int, transactional_id: str | None = None, timeout_ms: int = 60_000
    ) -> None:
        """Take the time in `timeout_ms` that a transaction may be open.

        An open transaction with the same id is aborted, and its producer fenced.
        """
        self.cluster = cluster
        self._id = transactional_id
        self._batches = IdempotentBatches(codec, transactional=transactional_id is not None)
        #: The partitions in the transaction.
        self._added: set[TopicPartition] = set()
        self._first: tuple[TopicPartition, int] | None = None
        request = InitProducerIdRequest(transactional_id, timeout_ms)

        def attempt() -> Any:
            if transactional_id is None:
                response = cluster.any_call(request, INIT_VERSION)
            else:
                response = cluster.ask_coordinator(transactional_id, TRANSACTION, request, INIT_VERSION)
            check(f"producer {transactional_id or ''}", response.error_code)
            return response

        response = cluster.retry(attempt, also=_BUSY)
        self._batches.identity = ProducerIdentity(response.producer_id, response.producer_epoch)

    @property
    def transaction(self) -> SinkTransaction | None:
        """The transaction, or None if nothing was sent in it: for the coordinator such a transaction does not exist."""
        if self._id is None or not self._added:
            return None
        return SinkTransaction(self._id, *self._batches.identity)

    @property
    def written(self) -> WrittenTransaction | None:
        """The transaction and the place of one of its batches, or None if nothing was sent in it.

        Raises:
            ConnectorError: no broker has sent an offset: it recognised each batch as a duplicate and no longer knew the offset.
        """
        transaction = self.transaction
        if transaction is not None and self._first is None:
            raise ConnectorError(f"transaction {self._id}: it is not known where its records are", "write them again")
        return None if transaction is None or self._first is None else WrittenTransaction(transaction, *self._first)

    def add(self, place: TopicPartition, row: Row) -> None:
        """Take a row, and send the collected rows when they are many."""
        record = NewRecord(*row)
        size = record_bytes(record)
        if not self._batches.fits(place, size):
            self.flush()
        self._batches.add(place, record, size)
        if self._batches.collected_bytes > PENDING_BYTES_MAX:
            self.flush()

    def flush(self) -> None:
        """Send the collected rows, and return when all of them are acknowledged. Raises ConnectorError."""
        if self._id is not None and (new := [place for place in self._batches.collected if place not in self._added]):
            self._add_to_transaction(new)
        self._batches.seal()

        def attempt() -> None:
            while left := list(self._batches.sealed):
                if not self._send(left):
                    check(f"partition {min(left)}", ErrorCode.NOT_LEADER_OR_FOLLOWER)

        self.cluster.retry(attempt)

    def _send(self, places: list[TopicPartition]) -> bool:
        """Send each leader its next batches, then receive the responses. Return False if a batch must be sent again."""
        sent: list[tuple[SparkConnection, list[TopicPartition]]] = []
        for node, led in self.cluster.by_leader(places).items():
            batches = {place: self._batches.next_batch(place) for place in led}
            request = produce_request(batches, _REQUEST_MS_MAX, transactional_id=self._id)
            try:
                connection = self.cluster.node(node)
                connection.send(request, _PRODUCE_VERSION_MAX)
                sent.append((connection, led))
            except ConnectionLost:
                self._forget(node)
        return sum(self._acknowledged(connection, led) for connection, led in sent) == len(places)

    def _forget(self, node: int) -> None:
        try:
            self.cluster.forget(self.cluster.node(node))
        except ConnectionLost:
            return

    def _acknowledged(self, connection: SparkConnection, places: list[TopicPartition]) -> int:
        """Receive the response about these partitions. Return the number of partitions whose batch need not be sent again."""
        try:
            answers = dict(produced(connection.receive()))
        except ConnectionLost:
            self.cluster.forget(connection)
            return 0
        done = 0
        for place in places:
            if (part := answers.get(place)) is None:
                continue
            verdict, _ = self._batches.answered(place, part.error_code)
            if verdict in (BatchVerdict.FENCED, BatchVerdict.REJECTED):
                check(f"writing to {place[0]}-{place[1]}", part.error_code, part.error_message)
            if verdict is BatchVerdict.WRITTEN and self._first is None and part.base_offset >= 0:
                self._first = place, part.base_offset
            done += verdict is not BatchVerdict.AGAIN
        return done

    def _add_to_transaction(self, places: list[TopicPartition]) -> None:
        request = add_partitions(self._id or "", self._batches.identity, places)

        def attempt() -> None:
            response = self.cluster.ask_coordinator(self._id or "", TRANSACTION, request, ADD_VERSION)
            for (name, index), code in refused_partitions(response):
                check(f"transaction {self._id}, {name}-{index}", code)

        self.cluster.retry(attempt, also=_BUSY)
        self._added.update(places)


def end(cluster: BlockingCluster, transaction: SinkTransaction, *, commit: bool) -> bool:
    """End a transaction, in whichever process it began. Return False if it has ended with the other outcome, or by its timeout.

    Raises:
        ConnectorError: its outcome is not known, for example because the coordinator could not be reached.
    """
    name, producer, epoch = transaction

    def attempt() -> None:
        response = cluster.ask_coordinator(name, TRANSACTION, EndTxnRequest(name, producer, epoch, commit), END_VERSION)
        check(f"ending transaction {name}", response.error_code)

    try:
        cluster.retry(attempt, also=_BUSY)
    except ConnectorError as fault:
        if fault.code in ABORTED:
            return False
        raise
    return True
