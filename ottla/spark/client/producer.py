"""A blocking producer: idempotent (KIP-98), and with a transactional id in a transaction that another process may end.

A transaction is known by its id, producer id and epoch alone, so that an executor can fill it and the driver commit it, as Flink's
sink does after a restart. The requests are those of clients before KIP-890's second part: with these the epoch stays the same when a
transaction ends, and an EndTxn whose response was lost can be repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ottla.client.partitions import TopicPartition
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.builder import build_batch
from ottla.spark.client.cluster import TRANSACTION, BlockingCluster
from ottla.spark.client.connection import SparkConnection
from ottla.spark.errors import ConnectionLost, ConnectorError, check

#: Records of a partition are sent when there are so many bytes, well below max.message.bytes (1 MB by default).
BATCH_BYTES_MAX = 512 * 1024
#: All records that were not sent yet: then they are sent.
PENDING_BYTES_MAX = 8 * 1024 * 1024
_RECORD_OVERHEAD_BYTES = 20
_ACKS_ALL = -1
_REQUEST_MS_MAX = 30_000
_SEQUENCES = 1 << 31
INIT_VERSION_MAX, _ADD_VERSION_MAX, _END_VERSION_MAX, _PRODUCE_VERSION_MAX = 4, 3, 3, 11
#: What a coordinator answers while the transaction before is being ended.
_BUSY = (ErrorCode.CONCURRENT_TRANSACTIONS,)
#: What EndTxn is answered when the transaction has ended otherwise: by its timeout, or by a later producer of the same id.
ABORTED = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
)

#: Key, value, timestamp in milliseconds, headers.
Row = tuple[bytes | None, bytes | None, int, Sequence[tuple[str, bytes | None]]]


class SinkTransaction(NamedTuple):
    """An open transaction, as any process can end it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class WrittenTransaction(NamedTuple):
    """A transaction and the offset of one of its batches, by which the log shows how it ended: see `outcomes`."""

    transaction: SinkTransaction
    place: TopicPartition
    offset: int


class BlockingProducer:
    """Collects rows and sends them to the leaders of their partitions, each batch until it is acknowledged by all in-sync replicas."""

    def __init__(
        self, cluster: BlockingCluster, codec: int, transactional_id: str | None = None, timeout_ms: int = 60_000
    ) -> None:
        """Take in `timeout_ms` how long a transaction may be open. An open one of the same id is aborted, and its producer fenced."""
        self.cluster = cluster
        self._codec = codec
        self._id = transactional_id
        self._pending: dict[TopicPartition, list[Row]] = {}
        self._sizes: dict[TopicPartition, int] = {}
        self._bytes = 0
        self._sequences: dict[TopicPartition, int] = {}
        self._first: tuple[TopicPartition, int] | None = None
        request = InitProducerIdRequest(transactional_id, timeout_ms)

        def attempt() -> Any:
            if transactional_id is None:
                response = cluster.any_call(request, INIT_VERSION_MAX)
            else:
                response = cluster.ask_coordinator(transactional_id, TRANSACTION, request, INIT_VERSION_MAX)
            check(f"producer {transactional_id or ''}", response.error_code)
            return response

        response = cluster.retry(attempt, also=_BUSY)
        self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch

    @property
    def transaction(self) -> SinkTransaction | None:
        """The transaction, or None if nothing was sent in it: such a transaction does not exist for the coordinator."""
        if self._id is None or not self._sequences:
            return None
        return SinkTransaction(self._id, self.producer_id, self.producer_epoch)

    @property
    def written(self) -> WrittenTransaction | None:
        """The transaction and where it has written, or None if nothing was sent in it.

        Raises:
            ConnectorError: no broker has said at which offset, as where it recognised a batch that was sent again and no longer knew it.
        """
        transaction = self.transaction
        if transaction is not None and self._first is None:
            raise ConnectorError(f"transaction {self._id}: it is not known where its records are", "write them again")
        return None if transaction is None or self._first is None else WrittenTransaction(transaction, *self._first)

    def add(self, place: TopicPartition, row: Row) -> None:
        """Take a row, and send what there is when it is much."""
        size = _RECORD_OVERHEAD_BYTES + len(row[0] or b"") + len(row[1] or b"")
        size += sum(len(name) + len(value or b"") for name, value in row[3])
        if self._sizes.get(place, 0) + size > BATCH_BYTES_MAX and place in self._pending:
            self.flush()
        self._pending.setdefault(place, []).append(row)
        self._sizes[place] = self._sizes.get(place, 0) + size
        self._bytes += size
        if self._bytes > PENDING_BYTES_MAX:
            self.flush()

    def flush(self) -> None:
        """Send what is there and return when all of it is acknowledged. Raises ConnectorError."""
        if not self._pending:
            return
        if self._id is not None and (new := [place for place in self._pending if place not in self._sequences]):
            self._add_to_transaction(new)
        batches = {place: self._built(place, rows) for place, rows in self._pending.items()}
        left = set(batches)

        def attempt() -> None:
            left.difference_update(self._send({place: batches[place] for place in left}))
            if left:
                check(f"partition {min(left)}", ErrorCode.NOT_LEADER_OR_FOLLOWER)

        self.cluster.retry(attempt)
        for place, rows in self._pending.items():
            self._sequences[place] = (self._sequences.get(place, 0) + len(rows)) % _SEQUENCES
        self._pending, self._sizes, self._bytes = {}, {}, 0

    def _built(self, place: TopicPartition, rows: list[Row]) -> bytes:
        return build_batch(
            rows,
            compression=self._codec,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self._sequences.get(place, 0),
            transactional=self._id is not None,
        )

    def _send(self, batches: dict[TopicPartition, bytes]) -> list[TopicPartition]:
        """Send each leader its batches, then collects the responses. Return the partitions that were acknowledged."""
        sent: list[SparkConnection] = []
        for node, places in self.cluster.by_leader(batches).items():
            topics: dict[str, list[PartitionProduceData]] = {}
            for name, index in places:
                topics.setdefault(name, []).append(PartitionProduceData(index, batches[name, index]))
            rows = [TopicProduceData(name, partition_data=parts) for name, parts in topics.items()]
            request = ProduceRequest(self._id, _ACKS_ALL, _REQUEST_MS_MAX, rows)
            try:
                connection = self.cluster.node(node)
                connection.send(request, _PRODUCE_VERSION_MAX)
                sent.append(connection)
            except ConnectionLost:
                self._forget(node)
        return [place for connection in sent for place in self._acknowledged(connection)]

    def _forget(self, node: int) -> None:
        try:
            self.cluster.forget(self.cluster.node(node))
        except ConnectionLost:
            return

    def _acknowledged(self, connection: SparkConnection) -> list[TopicPartition]:
        try:
            response = connection.receive()
        except ConnectionLost:
            self.cluster.forget(connection)
            return []
        found = []
        for topic in response.responses:
            for part in topic.partition_responses:
                code = part.error_code
                if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    found.append((topic.name, part.index))
                    if self._first is None and part.base_offset >= 0:
                        self._first = found[-1], part.base_offset
                elif not (code in ErrorCode._value2member_map_ and ErrorCode(code).retriable):
                    check(f"writing to {topic.name}-{part.index}", code, part.error_message)
        return found

    def _add_to_transaction(self, places: list[TopicPartition]) -> None:
        topics: dict[str, list[int]] = {}
        for name, index in places:
            topics.setdefault(name, []).append(index)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id or "",
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name, parts) for name, parts in topics.items()],
        )

        def attempt() -> None:
            response = self.cluster.ask_coordinator(self._id or "", TRANSACTION, request, _ADD_VERSION_MAX)
            for topic in response.results_by_topic_v3_and_below:
                for part in topic.results_by_partition:
                    check(f"transaction {self._id}, {topic.name}-{part.partition_index}", part.partition_error_code)

        self.cluster.retry(attempt, also=_BUSY)


def end(cluster: BlockingCluster, transaction: SinkTransaction, *, commit: bool) -> bool:
    """End a transaction, in whichever process it began. Return False if it has ended the other way, or by its timeout.

    Raises:
        ConnectorError: it is not known how it ended, as after a time without the coordinator.
    """
    name, producer, epoch = transaction

    def attempt() -> None:
        response = cluster.ask_coordinator(
            name, TRANSACTION, EndTxnRequest(name, producer, epoch, commit), _END_VERSION_MAX
        )
        check(f"ending transaction {name}", response.error_code)

    try:
        cluster.retry(attempt, also=_BUSY)
    except ConnectorError as fault:
        if fault.code in ABORTED:
            return False
        raise
    return True
