"""The transaction coordinator as handlers see it: finds the shard of a transactional id, gives a response, now or by a Reply.

Here are the checks that need no shard, the producer ids that decisions take, and the markers on their way. It also describes
transactions to administrators (KIP-664, KIP-994, KIP-1152). The steps of a transaction are in decisions.py.
"""

from __future__ import annotations

import builtins
import logging
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from ottla.broker.coordinator.coordinator import Coordinator
from ottla.broker.coordinator.listing import Listing
from ottla.broker.coordinator.outcome import OnError, Outcome, coded, error_code
from ottla.broker.coordinator.partition_log import PartitionLog, TopicPartition
from ottla.broker.coordinator.runtime import CoordinatorRuntime
from ottla.broker.coordinator.turns import ShardTurns
from ottla.broker.groups.modern.offload import compiled
from ottla.broker.transactions import decisions
from ottla.broker.transactions.after_markers import AfterMarkers
from ottla.broker.transactions.markers import MARKERS, MarkerRoutes, MarkerSending
from ottla.broker.transactions.transaction import (
    BY_NAME,
    EPOCH_BUMP_SINCE,
    NO_PARTITIONS,
    PREPARED,
    Partitions,
    Transaction,
    TransactionRecordCodec,
    by_topic,
)
from ottla.broker.transactions.transaction_shard import ProducerIdNeeded, TransactionConfig, TransactionShard
from ottla.broker.transactions.transaction_stories import TransactionStories
from ottla.controller.metadata.topic_names import TRANSACTION_STATE_TOPIC
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages import describe_transactions, list_transactions
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.protocol.messages.shared_structs import TopicNamePartitions
from ottla.server.network.context import Answer, Reply, gather, then
from ottla.server.regex.automaton import TooMuchWork
from ottla.server.story import NO_CAUSE, UNNAMED, Asker, Cause, because

log = logging.getLogger(__name__)

TOPIC = TRANSACTION_STATE_TOPIC

T = TypeVar("T")

TIMED_OUT = because("transaction.timeout.ms")
# The log of the transaction's own partition rejects writes at present.
RETRY_COMPLETION_MS = 100
# EndTxn v5 is how a client says that it knows version 2.
END_TXN_OF_V2 = 5


class ProducerIdSource(Protocol):
    def take(self, receive: Callable[[int, ErrorCode], None]) -> None: ...


class TransactionCoordinator(Coordinator[TransactionShard]):
    """Producers' requests, and the markers that its shards set off."""

    def __init__(
        self,
        config: TransactionConfig,
        partition_log: PartitionLog,
        routes: MarkerRoutes,
        producer_ids: ProducerIdSource,
        partition_count: Callable[[], int],
        transaction_version: Callable[[], int],
        turns: ShardTurns | None = None,
    ) -> None:
        self.config = config
        self.transaction_version = transaction_version
        self._routes = routes
        self._producer_ids = producer_ids
        self._sendings: dict[str, MarkerSending] = {}
        self._after_markers = AfterMarkers(routes.clock, config.add_partitions_retry_backoff_max_ms)
        #: Transactions that stay prepared until another coordinator loads them: a partition has refused their marker for good.
        self.refused_markers = 0
        clock = routes.clock
        self.stories = TransactionStories("transactional id", clock.wall_ms)
        runtime = CoordinatorRuntime(
            TOPIC,
            partition_log,
            clock,
            TransactionRecordCodec(transaction_version),
            lambda timers: TransactionShard(timers, config, clock.wall_ms, self),
            config.request_timeout_ms,
            turns,
            self.stories,
        )
        super().__init__(runtime, partition_count)

    # ---- notifications of the broker

    def unload(self, partition: int) -> None:
        super().unload(partition)
        for transactional_id in [t for t in self._sendings if self.partition_for(t) == partition]:
            self._sendings.pop(transactional_id).stop()
            self._after_markers.written(transactional_id)

    def close(self) -> None:
        sendings, self._sendings = self._sendings, {}
        for sending in sendings.values():
            sending.stop()
        super().close()
        for transactional_id in sendings:
            self._after_markers.written(transactional_id)

    # ---- producers

    def init_producer_id(
        self, request: InitProducerIdRequest, asker: Asker = UNNAMED
    ) -> Answer[InitProducerIdResponse]:
        transactional_id = request.transactional_id
        if not transactional_id:
            return _init_error(KafkaError(ErrorCode.INVALID_REQUEST))
        if request.enable_2pc and not self.config.two_phase_commit_enable:
            return _init_error(KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        if request.keep_prepared_txn:
            return _init_error(KafkaError(ErrorCode.UNSUPPORTED_VERSION))
        if not 0 < request.transaction_timeout_ms <= self.config.transaction_max_timeout_ms:
            return _init_error(KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT))
        return self._write_with_producer_id(
            transactional_id,
            ("InitProducerId", asker),
            (request.producer_id, request.producer_epoch),
            lambda shard, now_ms, producer_id: decisions.init_producer_id(shard, now_ms, request, producer_id),
            _init_error,
        )

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        added: Partitions,
        client_transaction_version: int,
        cause: Cause = NO_CAUSE,
    ) -> Answer[ErrorCode]:
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST

        def decide() -> Answer[ErrorCode]:
            self.stories.begin(transactional_id, cause)
            asked = transactional_id, producer_id, producer_epoch, added, client_transaction_version
            on_error = self._with_story(transactional_id, cause, (producer_id, producer_epoch), error_code)
            return self.runtime.write(self.partition_for(transactional_id), decisions.add, on_error, *asked)

        return self._after_markers.wait(transactional_id, decide) if transactional_id in self._sendings else decide()

    def verify_partitions(
        self, transactional_id: str, producer_id: int, producer_epoch: int, asked: Partitions
    ) -> Answer[dict[TopicPartition, ErrorCode]]:
        if not transactional_id:
            return dict.fromkeys(asked, ErrorCode.INVALID_REQUEST)
        return self.runtime.read(
            self.partition_for(transactional_id),
            decisions.verify,
            lambda error: dict.fromkeys(asked, error.code),
            transactional_id,
            producer_id,
            producer_epoch,
            asked,
        )

    def end(self, request: EndTxnRequest, api_version: int, asker: Asker = UNNAMED) -> Answer[EndTxnResponse]:
        if not request.transactional_id:
            return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
        client_transaction_version = EPOCH_BUMP_SINCE if api_version >= END_TXN_OF_V2 else 0
        return self._write_with_producer_id(
            request.transactional_id,
            ("EndTxn", asker),
            (request.producer_id, request.producer_epoch),
            lambda shard, now_ms, producer_id: decisions.end(
                shard, now_ms, request, client_transaction_version, producer_id
            ),
            coded(EndTxnResponse),
        )

    def _write_with_producer_id(
        self,
        transactional_id: str,
        cause: Cause,
        producer: tuple[int, int],
        decide: Callable[[TransactionShard, int, int | None], Outcome[T]],
        on_error: OnError[T],
    ) -> Answer[T]:
        """Decide; when that takes a producer id, get one and decide again. `producer` is the id and the epoch that the request has."""
        on_error = self._with_story(transactional_id, cause, producer, on_error)

        def write(producer_id: int | None) -> Answer[T]:
            self.stories.begin(transactional_id, cause)
            return self.runtime.write(
                self.partition_for(transactional_id),
                lambda shard, now_ms: decide(shard, now_ms, producer_id),
                on_error,
            )

        try:
            return write(None)
        except ProducerIdNeeded:
            taken: Reply[tuple[int, ErrorCode]] = Reply()
        self._producer_ids.take(lambda producer_id, error: taken.complete((producer_id, error)))

        def received(taken: tuple[int, ErrorCode]) -> Answer[T]:
            producer_id, error = taken
            return on_error(KafkaError(error)) if error else write(producer_id)

        return then(taken, received)

    def _with_story(
        self, transactional_id: str, cause: Cause, producer: tuple[int, int], on_error: OnError[T]
    ) -> OnError[T]:
        """Make `on_error` also add to the story that the request was rejected: that is how a producer learns that it is fenced."""

        def rejected(error: KafkaError) -> T:
            self.stories.begin(transactional_id, cause)
            self.stories.answered(transactional_id, *producer, error.code)
            return on_error(error)

        return rejected

    # ---- what the shards set off

    def complete(self, transaction: Transaction) -> None:
        """Write the markers, then the completion record. The record of the outcome is committed already."""
        transactional_id = transaction.transactional_id
        partition = self.partition_for(transactional_id)
        known = self._sendings.pop(transactional_id, None)
        if known is not None:
            known.stop()

        def write_completion() -> None:
            """Write the completion, and retry later if the log rejects the record (a full disk, too few replicas),
            because only this task completes the transaction while this broker leads.
            """
            if self._sendings.get(transactional_id) is not sending:
                return
            self.stories.begin(transactional_id, MARKERS)
            try:
                self.runtime.write_unasked(partition, decisions.complete, transaction)
            except KafkaError:
                self._routes.clock.call_later(RETRY_COMPLETION_MS, write_completion)
                return
            if self._sendings.get(transactional_id) is sending:
                del self._sendings[transactional_id]
            self._after_markers.written(transactional_id)

        epoch = self.runtime.leader_epoch(partition)
        sending = self._sendings[transactional_id] = MarkerSending(
            self._routes, transaction, epoch, write_completion, self._count_refused, self.stories
        )
        sending.start()

    def _count_refused(self) -> None:
        self.refused_markers += 1

    def abort(self, transaction: Transaction) -> None:
        self.stories.logger_of(transaction.transactional_id, log, TIMED_OUT).info(
            "Rollback of ongoing transaction for transactionalId %s due to timeout (%d ms)",
            transaction.transactional_id,
            transaction.timeout_ms,
        )
        self._write_with_producer_id(
            transaction.transactional_id,
            TIMED_OUT,
            (transaction.producer_id, transaction.producer_epoch),
            lambda shard, now_ms, producer_id: decisions.abort_timed_out(shard, now_ms, transaction, producer_id),
            error_code,
        )

    def unwritten_markers(self, transactional_id: str) -> frozenset[TopicPartition] | None:
        sending = self._sendings.get(transactional_id)
        return None if sending is None else frozenset(sending.left)

    # ---- administrators

    def describe(self, transactional_ids: Sequence[str]) -> Answer[list[describe_transactions.TransactionState]]:
        return gather([self._describe(transactional_id) for transactional_id in transactional_ids], list)

    def _describe(self, transactional_id: str) -> Answer[describe_transactions.TransactionState]:
        if not transactional_id:
            return _describe_error(transactional_id, ErrorCode.INVALID_REQUEST)
        return self.runtime.read(
            self.partition_for(transactional_id),
            described,
            lambda error: _describe_error(transactional_id, error.code),
            transactional_id,
        )

    def list(self, request: ListTransactionsRequest) -> Answer[ListTransactionsResponse]:
        """List the transactions of all shards here; while a shard is loading the response is COORDINATOR_LOAD_IN_PROGRESS."""
        unknown = [name for name in request.state_filters if name not in BY_NAME]
        try:
            show = listed(self._routes.clock.wall_ms(), request)
        except KafkaError as error:
            return ListTransactionsResponse(error_code=error.code)

        def answer(
            found: tuple[ErrorCode, builtins.list[list_transactions.TransactionState]],
        ) -> ListTransactionsResponse:
            error, transactions = found
            if error:
                return ListTransactionsResponse(error_code=error)
            return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=transactions)

        def all_of(shard: TransactionShard) -> Sequence[Transaction]:
            return [*shard.transactions.values()]

        return then(Listing(self.runtime, all_of, show).answer(), answer)


def _init_error(error: KafkaError) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error.code, producer_id=-1, producer_epoch=-1)


def _describe_error(transactional_id: str, error: ErrorCode) -> describe_transactions.TransactionState:
    return describe_transactions.TransactionState(error_code=error, transactional_id=transactional_id)


def described(shard: TransactionShard, transactional_id: str) -> describe_transactions.TransactionState:
    """Describe transactions; their partitions are those whose marker is not written yet."""
    transaction = shard.find(transactional_id)
    if transaction is None:
        return _describe_error(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    partitions = transaction.partitions
    if transaction.state in PREPARED:
        left = shard.coordinating.unwritten_markers(transactional_id)
        partitions = NO_PARTITIONS if left is None else left
    return describe_transactions.TransactionState(
        transactional_id=transactional_id,
        transaction_state=transaction.state.kafka_name,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[TopicNamePartitions(name, indexes) for name, indexes in by_topic(partitions).items()],
    )


def matcher(pattern: str | None) -> Callable[[str], bool]:
    """Return a function that is True for a matching transactional id, with the bounds of groups' expressions.

    Raises:
        KafkaError: INVALID_REGULAR_EXPRESSION, also if the pattern is too large or not Unicode; the function, if it needs too much work.
    """
    if not pattern:
        return lambda transactional_id: True
    try:
        expression = compiled(pattern)
    except ValueError as error:  # UnicodeEncodeError is one
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error

    def matches(transactional_id: str) -> bool:
        try:
            return expression.fullmatch(transactional_id) is not None
        except TooMuchWork as error:
            raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error

    return matches


def listed(
    now_ms: int, request: ListTransactionsRequest
) -> Callable[[Transaction], list_transactions.TransactionState | None]:
    """Return a function that shows a transaction, None if it does not pass every filter of the request.

    Raises:
        KafkaError: INVALID_REGULAR_EXPRESSION, also if the pattern is too large or not Unicode.
    """
    matches = matcher(request.transactional_id_pattern)
    states = {BY_NAME[name] for name in request.state_filters if name in BY_NAME}
    producer_ids = set(request.producer_id_filters)

    def show(transaction: Transaction) -> list_transactions.TransactionState | None:
        if producer_ids and transaction.producer_id not in producer_ids:
            return None
        if request.state_filters and transaction.state not in states:
            return None
        if request.duration_filter >= 0 and now_ms - transaction.start_ms <= request.duration_filter:
            return None
        if not matches(transaction.transactional_id):
            return None
        return list_transactions.TransactionState(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            transaction_state=transaction.state.kafka_name,
        )

    return show
