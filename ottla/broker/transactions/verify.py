"""Transaction verification: before an append the leader checks that the coordinator knows the partition (KIP-890).

A batch without a transaction at the coordinator would never get a marker, and would block the last stable offset for good.
So the first batch of a transaction in a partition waits for the coordinator's response; later ones, while the transaction is
open here, do not. The request depends on the client's version:

    EXPECTED    Produce to v10    it has added the partition itself: verify; INVALID_TXN_STATE when it has not
    ABORTABLE   v11               the same; TRANSACTION_ABORTABLE when it has not
    ADDED       v12               the broker adds the partition for it

Between request and response the transaction may end and another begin. So a `Verification` is taken from the log's producer
states before the request, which is valid until a transaction ends or begins. If it is invalid afterwards, the request is
repeated: mostly the marker of the producer's previous transaction was late, and the response took it into account already.
The append itself checks the verification, too (`ProducerStates.check`): a transaction that was open when the Produce arrived
may have ended while the Produce waited for the verification of other partitions.
A verification does not wait longer than its Produce request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import Any, TypeVar

from ottla.broker.coordinator.partition_log import TopicPartition
from ottla.broker.transactions.markers import MarkerRoutes
from ottla.broker.transactions.transaction import EPOCH_BUMP_SINCE, Partitions, by_topic
from ottla.broker.transactions.transaction_coordinator import TransactionCoordinator
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.server.clock import TimerHandle
from ottla.server.network.context import Answer, Reply, RequestContext, then
from ottla.server.story import because
from ottla.storage.producers.producer_states import ProducerStates, Verification

T = TypeVar("T")

#: The cause of a partition that joins a transaction because its leader asks for it, at the transaction's first append (KIP-890).
FIRST_APPEND = because("first append")
Verdicts = dict[TopicPartition, ErrorCode]

# The limit of a producer's requests that wait behind another; a client has at most five in flight.
WAITING_MAX = 1_000
# After three invalidated verifications give up: a late marker of the previous transaction can explain only one.
ASKED_AGAIN_MAX = 3


class Operation(Enum):
    EXPECTED = "expected"
    ABORTABLE = "abortable"
    ADDED = "added"


class Expectation:
    """An append to one partition that waits for its verification by the coordinator."""

    def __init__(
        self, producers: ProducerStates, producer_id: int, epoch: int, first_sequence: int, supports_epoch_bump: bool
    ) -> None:
        self._producers = producers
        self._producer = (producer_id, epoch)
        self._first_sequence = first_sequence
        self._supports_epoch_bump = supports_epoch_bump
        self._ticket: Verification | None = None

    def take_ticket(self, now_ms: int) -> None:
        producer_id, epoch = self._producer
        self._ticket = self._producers.expect_append(
            producer_id, self._first_sequence, epoch, now_ms, supports_epoch_bump=self._supports_epoch_bump
        )

    @property
    def holds(self) -> bool:
        """Return True if the verification is still valid."""
        return self._ticket is not None and self._producers.may_append(*self._producer, self._ticket)


Expectations = Mapping[TopicPartition, Expectation]


class AppendVerifier:
    """Verifies appends at the coordinator (KIP-890). `coordinator_of(transactional_id)` returns the coordinator's broker id, or -1."""

    def __init__(
        self,
        routes: MarkerRoutes,
        coordinator: TransactionCoordinator,
        coordinator_of: Callable[[str], int],
        verification_enabled: Callable[[], bool],
    ) -> None:
        self.clock = routes.clock
        self.config = coordinator.config
        self._routes = routes
        self._coordinator = coordinator
        self._coordinator_of = coordinator_of
        self._verification_enabled = verification_enabled
        # Requests by transactional id: the one in flight, and those that wait for it, so that batches stay in order. A waiting
        # request that expires keeps its place, and is skipped.
        self._waiting: dict[str, deque[_Question]] = {}
        self._draining: set[str] = set()

    def admit(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        expected: Expectations,
        operation: Operation,
        timeout_ms: int,
    ) -> Answer[Verdicts]:
        """Return NONE for partitions that may be appended to in this turn, and for the others an error that clients of this operation know."""
        if operation is not Operation.ADDED and not self._verification_enabled():
            for expectation in expected.values():
                expectation.take_ticket(self.clock.wall_ms())
            return dict.fromkeys(expected, ErrorCode.NONE)
        question = _Question(self, transactional_id, producer_id, producer_epoch, expected, operation)
        queue = self._waiting.get(transactional_id)
        if queue is not None:
            if len(queue) > WAITING_MAX:
                return dict.fromkeys(expected, ErrorCode.CONCURRENT_TRANSACTIONS)
            queue.append(question)
        else:
            self._waiting[transactional_id] = deque([question])
            try:
                self._ask_in_order(transactional_id)
            except BaseException:
                del self._waiting[transactional_id]  # otherwise no later request of this id would be sent
                raise
            if question.answer is not None:
                return question.answer
        question.expire_in(timeout_ms)
        return question.reply

    def is_waiting(self, transactional_id: str) -> bool:
        """Return True if requests wait: a later one must not overtake them, even if it needs no verification."""
        return transactional_id in self._waiting

    def settled(self, question: _Question) -> None:
        """Send the next requests when the one in flight has its answer. A waiting request that expires does not let the next
        one overtake the one in flight.
        """
        queue = self._waiting.get(question.transactional_id)
        if queue and queue[0] is question:
            self._ask_in_order(question.transactional_id)

    def _ask_in_order(self, transactional_id: str) -> None:
        """Send requests until one has to wait."""
        if transactional_id in self._draining:
            return  # the loop below goes on
        self._draining.add(transactional_id)
        queue = self._waiting[transactional_id]
        try:
            while queue:
                queue[0].ask()
                if queue[0].answer is None:
                    return
                queue.popleft()
            del self._waiting[transactional_id]
        finally:
            self._draining.discard(transactional_id)

    def ask(
        self, transactional_id: str, producer_id: int, producer_epoch: int, asked: Partitions, operation: Operation
    ) -> Answer[Verdicts]:
        """Send one request to the coordinator, on this or another broker."""
        if not asked:
            return {}
        node_id = self._coordinator_of(transactional_id)
        if node_id < 0:
            return dict.fromkeys(asked, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if node_id != self._routes.node_id:
            reply: Reply[Verdicts] = Reply()
            request = _request(transactional_id, producer_id, producer_epoch, asked, operation)
            self._routes.spawn(_ask_elsewhere(self._routes.send(node_id, request), asked, reply), "verify-transaction")
            return reply
        if operation is not Operation.ADDED:
            return self._coordinator.verify_partitions(transactional_id, producer_id, producer_epoch, asked)
        answer = self._coordinator.add_partitions(
            transactional_id, producer_id, producer_epoch, asked, EPOCH_BUMP_SINCE, FIRST_APPEND
        )
        return then(answer, lambda error: dict.fromkeys(asked, error))


def in_order(context: RequestContext, verdicts: Answer[Verdicts], append: Callable[[Verdicts], Answer[T]]) -> Answer[T]:
    """Return the response of `append(verdicts)`. The client's next request does not overtake it while the verdicts are waited for.

    An append may need a worker, for example to make the files of a new partition. So the connection is paused meanwhile, and
    such work pauses it again before this pause ends.
    """
    if not isinstance(verdicts, Reply):
        return append(verdicts)
    pause = context.connection.pause()

    def go_on(known: Verdicts) -> Answer[T]:
        try:
            return append(known)
        finally:
            pause.end()

    return verdicts.then(go_on)


class _Question:
    """A request that is retried until the producer's previous transaction has completed, or that takes too long."""

    def __init__(
        self,
        verifier: AppendVerifier,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        expected: Expectations,
        operation: Operation,
    ) -> None:
        self.reply: Reply[Verdicts] = Reply()
        self.answer: Verdicts | None = None
        self._verifier = verifier
        self.transactional_id = transactional_id
        self._args = (transactional_id, producer_id, producer_epoch, frozenset(expected), operation)
        self._expected = expected
        self._operation = operation
        self._started_ms = -1
        self._asked_again = 0
        self._timeout: TimerHandle | None = None

    def expire_in(self, timeout_ms: int) -> None:
        """Set the request's timeout; the client then gets a retriable error."""
        too_late = dict.fromkeys(self._expected, ErrorCode.NETWORK_EXCEPTION)
        self._timeout = self._verifier.clock.call_later(timeout_ms, lambda: self._give(too_late))

    def ask(self) -> None:
        if self.answer is not None:
            return
        clock = self._verifier.clock
        if self._started_ms < 0:
            self._started_ms = clock.mono_ms()
        for expectation in self._expected.values():
            expectation.take_ticket(clock.wall_ms())
        then(self._verifier.ask(*self._args), self._answered)

    def _answered(self, verdicts: Verdicts) -> None:
        if self.answer is not None:
            return
        if self._operation is Operation.ADDED and ErrorCode.CONCURRENT_TRANSACTIONS in verdicts.values():
            # The previous transaction still completes.
            config, clock = self._verifier.config, self._verifier.clock
            if clock.mono_ms() - self._started_ms < config.add_partitions_retry_backoff_max_ms:
                clock.call_later(config.add_partitions_retry_backoff_ms, self.ask)
                return
        void = [tp for tp, error in verdicts.items() if not error and not self._expected[tp].holds]
        if void and self._asked_again < ASKED_AGAIN_MAX:
            self._asked_again += 1
            self.ask()
            return
        mapped = {tp: _verdict_for_client(error, self._operation) for tp, error in verdicts.items()}
        self._give(mapped | dict.fromkeys(void, ErrorCode.INVALID_TXN_STATE))

    def _give(self, answer: Verdicts) -> None:
        if self.answer is not None:
            return
        self.answer = answer
        if self._timeout is not None:
            self._timeout.cancel()
        try:
            self.reply.complete(answer)
        finally:
            self._verifier.settled(self)


def _verdict_for_client(error: ErrorCode, operation: Operation) -> ErrorCode:
    """Map an error to the code that the producer's version knows."""
    if error == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error == ErrorCode.TRANSACTION_ABORTABLE and operation is Operation.EXPECTED:
        return ErrorCode.INVALID_TXN_STATE
    return error


def _request(
    transactional_id: str, producer_id: int, producer_epoch: int, asked: Partitions, operation: Operation
) -> AddPartitionsToTxnRequest:
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        verify_only=operation is not Operation.ADDED,
        topics=[AddPartitionsToTxnTopic(name, indexes) for name, indexes in by_topic(asked).items()],
    )
    return AddPartitionsToTxnRequest(transactions=[transaction])


async def _ask_elsewhere(sending: Awaitable[Any], asked: Partitions, reply: Reply[Verdicts]) -> None:
    verdicts = dict.fromkeys(asked, ErrorCode.NETWORK_EXCEPTION)
    try:
        response = await sending
        if response.error_code:
            # This error is between brokers. INVALID_TXN_STATE makes the client abort the transaction.
            verdicts = dict.fromkeys(asked, ErrorCode.INVALID_TXN_STATE)
        for transaction in response.results_by_transaction:
            for topic in transaction.topic_results:
                for result in topic.results_by_partition:
                    verdicts[topic.name, result.partition_index] = ErrorCode(result.partition_error_code)
    except KafkaError:
        pass
    reply.complete(verdicts)
