"""Transaction verification before an append: the coordinator that gets the request, the order of requests, and the client's
response.
"""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.transactions.markers import MarkerRoutes
from ottla.broker.transactions.verify import (
    ASKED_AGAIN_MAX,
    WAITING_MAX,
    AppendVerifier,
    Expectation,
    Operation,
    in_order,
)
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from ottla.protocol.records.control import EndTxnMarker
from ottla.server.network.context import Reply, RequestContext
from ottla.storage.producers.producer_states import ProducerStates
from tests.broker.transactions.harness import HERE, TP, TransactionalProducer, TransactionCoordinatorHarness, parse

T0, T1 = parse("t-0"), parse("t-1")
ELSEWHERE = 2
PATIENCE_MS = 5_000


class VerifierHarness:
    """A verifier beside a coordinator; `elsewhere` answers for the coordinator of another broker."""

    def __init__(self) -> None:
        self.coordinator_harness = TransactionCoordinatorHarness()
        self.producer = TransactionalProducer(self.coordinator_harness)
        self.producer.init()
        self.coordinator_node = HERE
        self.enabled = True
        self.elsewhere: Any = None
        self.asked: list[AddPartitionsToTxnRequest] = []
        self.waiting: list[Any] = []
        # The producer states in the logs of the partitions.
        self.states: dict[Any, ProducerStates] = defaultdict(ProducerStates)
        routes = MarkerRoutes(
            HERE, lambda tp: HERE, lambda marker, done: None, self._send, self._spawn, self.coordinator_harness.clock
        )
        self.verifier = AppendVerifier(
            routes,
            self.coordinator_harness.coordinator,
            lambda transactional_id: self.coordinator_node,
            lambda: self.enabled,
        )

    async def _send(self, node_id: int, request: Any) -> Any:
        assert node_id == ELSEWHERE
        self.asked.append(request)
        if isinstance(self.elsewhere, KafkaError):
            raise self.elsewhere
        return self.elsewhere

    def _spawn(self, coroutine: Any, name: str) -> None:
        self.waiting.append(coroutine)

    def let_others_answer(self) -> None:
        waiting, self.waiting = self.waiting, []
        for coroutine in waiting:
            try:
                coroutine.send(None)
            except StopIteration:
                continue
            raise AssertionError("an answer waits for something")

    def admit(self, operation: Operation, *partitions: Any, epoch: int = 0) -> Any:
        return self.ask(operation, *(partitions or [T0]), epoch=epoch)

    def ask(self, operation: Operation, *partitions: Any, epoch: int = 0, patience_ms: int = PATIENCE_MS) -> Any:
        producer = (self.producer.producer_id, self.producer.epoch + epoch)
        added = operation is Operation.ADDED
        expected = {tp: Expectation(self.states[tp], *producer, 0, added) for tp in partitions}
        return self.verifier.admit("x", *producer, expected, operation, patience_ms)


def coordinator_says(error: ErrorCode) -> AddPartitionsToTxnResponse:
    topic = AddPartitionsToTxnTopicResult("t", [AddPartitionsToTxnPartitionResult(0, error)])
    return AddPartitionsToTxnResponse(results_by_transaction=[AddPartitionsToTxnResult("x", [topic])])


def when_given(answer: Any) -> list[Any]:
    assert type(answer) is Reply
    given: list[Any] = []
    answer.when_done(given.append)
    return given


def test_a_broker_adds_the_partition_for_a_client_of_version_2() -> None:
    harness = VerifierHarness()
    assert harness.admit(Operation.ADDED) == {T0: ErrorCode.NONE}
    assert harness.coordinator_harness.shard.transactions["x"].partitions == {T0}


def test_what_an_older_client_has_not_added_is_refused_in_words_it_knows() -> None:
    harness = VerifierHarness()
    harness.producer.add("t-1")
    assert harness.admit(Operation.EXPECTED, T0, T1) == {T0: ErrorCode.INVALID_TXN_STATE, T1: ErrorCode.NONE}
    assert harness.admit(Operation.ABORTABLE, T0, T1) == {T0: ErrorCode.TRANSACTION_ABORTABLE, T1: ErrorCode.NONE}
    assert harness.admit(Operation.ABORTABLE, T1, epoch=-1) == {T1: ErrorCode.INVALID_PRODUCER_EPOCH}


def test_verification_can_be_switched_off_but_adding_cannot() -> None:
    harness = VerifierHarness()
    harness.enabled = False
    assert harness.admit(Operation.EXPECTED) == {T0: ErrorCode.NONE}
    assert (
        "x" in harness.coordinator_harness.shard.transactions
        and not harness.coordinator_harness.shard.transactions["x"].partitions
    )
    assert harness.admit(Operation.ADDED, epoch=5) == {T0: ErrorCode.INVALID_PRODUCER_EPOCH}


def test_while_the_last_transaction_completes_the_broker_asks_again_before_it_sends_the_client_away() -> None:
    harness = VerifierHarness()
    harness.coordinator_harness.marker_behaviour("t-0", "later")
    harness.producer.add("t-0")
    harness.producer.end(True)
    given = when_given(harness.admit(Operation.ADDED, T1))
    harness.coordinator_harness.clock.advance(40)
    assert given == []
    harness.coordinator_harness.marker_behaviour("t-0", "NONE")
    harness.coordinator_harness.clock.advance(20)
    assert given == [{T1: ErrorCode.NONE}]


def test_a_client_is_sent_away_when_the_last_transaction_takes_too_long() -> None:
    harness = VerifierHarness()
    harness.coordinator_harness.marker_behaviour("t-0", "later")
    harness.producer.add("t-0")
    harness.producer.end(True)
    given = when_given(harness.admit(Operation.ADDED, T1))
    harness.coordinator_harness.clock.advance(200)
    assert given == [{T1: ErrorCode.CONCURRENT_TRANSACTIONS}]
    assert not harness.verifier.is_waiting("x")


def test_requests_of_one_producer_are_answered_in_their_order() -> None:
    harness = VerifierHarness()
    harness.coordinator_harness.marker_behaviour("t-0", "later")
    harness.producer.add("t-0")
    harness.producer.end(True)
    order: list[str] = []
    for label, partitions in (("first", [T1]), ("second", [T1]), ("nothing to ask", [])):
        answer = harness.ask(Operation.ADDED, *partitions)
        assert type(answer) is Reply
        answer.when_done(lambda verdicts, label=label: order.append(label))
    assert harness.verifier.is_waiting("x")
    # The third request names no partition: it only must not overtake the others.
    harness.coordinator_harness.marker_behaviour("t-0", "NONE")
    harness.coordinator_harness.clock.advance(20)
    assert order == ["first", "second", "nothing to ask"]
    assert not harness.verifier.is_waiting("x")


def test_a_producer_that_asks_without_end_is_refused() -> None:
    harness = VerifierHarness()
    harness.coordinator_harness.log.hold = True
    harness.admit(Operation.ADDED)
    for _ in range(WAITING_MAX):
        assert type(harness.admit(Operation.ADDED)) is Reply
    assert harness.admit(Operation.ADDED) == {T0: ErrorCode.CONCURRENT_TRANSACTIONS}
    harness.coordinator_harness.log.release(TP)
    assert not harness.verifier.is_waiting("x")


def test_an_added_partition_counts_when_its_record_is_committed() -> None:
    harness = VerifierHarness()
    harness.coordinator_harness.log.hold = True
    given = when_given(harness.admit(Operation.ADDED))
    assert given == []
    harness.coordinator_harness.log.release(TP)
    assert given == [{T0: ErrorCode.NONE}]


def test_without_a_coordinator_a_transaction_cannot_be_verified() -> None:
    harness = VerifierHarness()
    harness.coordinator_node = -1
    assert harness.admit(Operation.EXPECTED) == {T0: ErrorCode.COORDINATOR_NOT_AVAILABLE}


def test_a_coordinator_elsewhere_is_asked_by_its_api() -> None:
    harness = VerifierHarness()
    harness.coordinator_node = ELSEWHERE
    harness.elsewhere = coordinator_says(ErrorCode.PRODUCER_FENCED)
    given = when_given(harness.admit(Operation.EXPECTED))
    harness.let_others_answer()
    assert given == [{T0: ErrorCode.INVALID_PRODUCER_EPOCH}]
    (transaction,) = harness.asked[0].transactions
    assert (transaction.transactional_id, transaction.verify_only) == ("x", True)


def test_a_coordinator_that_cannot_be_reached_is_a_network_error() -> None:
    harness = VerifierHarness()
    harness.coordinator_node = ELSEWHERE
    harness.elsewhere = KafkaError(ErrorCode.NETWORK_EXCEPTION)
    given = when_given(harness.admit(Operation.ADDED))
    harness.let_others_answer()
    assert given == [{T0: ErrorCode.NETWORK_EXCEPTION}]


def test_a_refusal_between_brokers_is_no_business_of_the_client() -> None:
    harness = VerifierHarness()
    harness.coordinator_node = ELSEWHERE
    harness.elsewhere = AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    given = when_given(harness.admit(Operation.ADDED))
    harness.let_others_answer()
    assert given == [{T0: ErrorCode.INVALID_TXN_STATE}]


def test_a_verification_that_is_never_answered_waits_no_longer_than_its_request_and_delays_no_later_one() -> None:
    harness = VerifierHarness()
    harness.coordinator_node = ELSEWHERE
    silent, behind = when_given(harness.admit(Operation.ADDED)), when_given(harness.admit(Operation.ADDED))
    harness.coordinator_harness.clock.advance(PATIENCE_MS - 1)
    assert silent == behind == []
    later = when_given(harness.admit(Operation.ADDED))
    harness.coordinator_harness.clock.advance(1)
    assert silent == behind == [{T0: ErrorCode.NETWORK_EXCEPTION}]
    harness.elsewhere = coordinator_says(ErrorCode.NONE)
    harness.let_others_answer()
    assert later == [{T0: ErrorCode.NONE}]
    assert not harness.verifier.is_waiting("x")


def test_a_receiver_that_fails_does_not_keep_the_next_ones_waiting() -> None:
    harness = VerifierHarness()
    harness.coordinator_node = ELSEWHERE
    harness.elsewhere = coordinator_says(ErrorCode.NONE)
    first = harness.admit(Operation.ADDED)
    first.when_done(lambda verdicts: 1 // 0)
    second = when_given(harness.admit(Operation.ADDED))
    with pytest.raises(ZeroDivisionError):
        harness.let_others_answer()
    harness.let_others_answer()
    assert second == [{T0: ErrorCode.NONE}]


# ---- the ticket: what was confirmed may have ended before the append


def test_the_marker_of_the_last_transaction_that_comes_while_the_coordinator_is_asked_refuses_nothing() -> None:
    harness = VerifierHarness()
    harness.coordinator_node = ELSEWHERE
    harness.elsewhere = coordinator_says(ErrorCode.NONE)
    given = when_given(harness.admit(Operation.ADDED))
    harness.states[T0].end_transaction(
        harness.producer.producer_id, harness.producer.epoch, EndTxnMarker(True, 0), offset=5, timestamp=0
    )
    harness.let_others_answer()
    assert given == [], "only the coordinator knows whether its answer was about the transaction that has ended"
    harness.let_others_answer()
    assert given == [{T0: ErrorCode.NONE}]


def test_what_ends_again_and_again_while_the_coordinator_is_asked_is_refused() -> None:
    harness = VerifierHarness()
    harness.coordinator_node = ELSEWHERE
    harness.elsewhere = coordinator_says(ErrorCode.NONE)
    given = when_given(harness.admit(Operation.ADDED))
    for offset in range(ASKED_AGAIN_MAX + 1):
        harness.states[T0].end_transaction(
            harness.producer.producer_id, harness.producer.epoch, EndTxnMarker(True, 0), offset=offset, timestamp=0
        )
        harness.let_others_answer()
    assert given == [{T0: ErrorCode.INVALID_TXN_STATE}]


def test_a_ticket_is_good_until_its_transaction_begins_or_ends() -> None:
    states = ProducerStates()
    ticket = states.expect_append(7, 0, 0, now_ms=0, supports_epoch_bump=True)
    assert states.may_append(7, 0, ticket)
    assert not states.may_append(7, 1, ticket)
    states.update(7, 0, 0, 0, 0, 0, transactional=True)
    assert states.may_append(7, 0, ticket), "the transaction is open here: others of it need no ticket"


def test_a_ticket_of_a_transaction_that_has_ended_admits_nothing_to_the_next_one() -> None:
    states = ProducerStates()
    ticket = states.expect_append(7, 0, 0, now_ms=0, supports_epoch_bump=False)
    states.end_transaction(7, 0, EndTxnMarker(False, 0), offset=5, timestamp=0)
    assert not states.may_append(7, 0, ticket)
    newer = states.expect_append(7, 0, 0, now_ms=0, supports_epoch_bump=False)
    assert not states.may_append(7, 0, ticket)
    assert states.may_append(7, 0, newer)


def test_a_ticket_that_was_renewed_for_a_newer_epoch_is_worth_nothing_to_the_older() -> None:
    states = ProducerStates()
    ticket = states.expect_append(7, 0, 0, now_ms=0, supports_epoch_bump=True)
    assert states.expect_append(7, 0, 1, now_ms=0, supports_epoch_bump=True) is ticket
    assert not states.may_append(7, 0, ticket)
    assert states.may_append(7, 1, ticket)


def test_the_connection_is_paused_until_an_append_that_waited_has_begun() -> None:
    """The append may need a worker. The producer's next request must not overtake it meanwhile (seed 24 of the simulator)."""
    steps: list[str] = []

    class Connection:
        def pause(self) -> SimpleNamespace:
            steps.append("paused")
            return SimpleNamespace(end=lambda: steps.append("goes on"))

    def append(verdicts: Any) -> str:
        steps.append(f"appends after {verdicts[T0].name}")
        return "response"

    harness = VerifierHarness()
    harness.coordinator_node = ELSEWHERE
    harness.elsewhere = coordinator_says(ErrorCode.NONE)
    context = cast(RequestContext, SimpleNamespace(connection=Connection()))
    given = when_given(in_order(context, harness.ask(Operation.ADDED, T0), append))
    assert steps == ["paused"]
    harness.let_others_answer()
    assert steps == ["paused", "appends after NONE", "goes on"]
    assert given == ["response"]


def test_a_queued_request_that_expires_neither_overtakes_the_one_in_flight_nor_ends_the_queue() -> None:
    """Another process had a shorter request.timeout.ms. Before the fix the id was stuck at this broker until the broker
    restarted.
    """
    harness = VerifierHarness()
    harness.coordinator_node, harness.elsewhere = ELSEWHERE, coordinator_says(ErrorCode.NONE)
    order: list[str] = []
    in_flight = harness.ask(Operation.ADDED, T0, patience_ms=30_000)
    short = harness.ask(Operation.ADDED, T0, patience_ms=1_000)
    behind = harness.ask(Operation.ADDED, T0, patience_ms=30_000)
    for name, reply in (("in flight", in_flight), ("short", short), ("behind", behind)):
        reply.when_done(lambda verdicts, name=name: order.append(f"{name} {verdicts[T0].name}"))
    harness.coordinator_harness.clock.advance(1_001)
    assert order == ["short NETWORK_EXCEPTION"] and len(harness.waiting) == 1, (
        "the next one waits for the one in flight"
    )
    harness.let_others_answer()
    harness.let_others_answer()
    assert order[1:] == ["in flight NONE", "behind NONE"]
    assert not harness.verifier.is_waiting("x") and not harness.verifier._draining
    for _ in range(2):
        later = when_given(harness.ask(Operation.ADDED, T0))
        harness.let_others_answer()
        assert later == [{T0: ErrorCode.NONE}]


def test_the_response_to_a_request_that_has_expired_in_flight_counts_for_none_behind_it() -> None:
    harness = VerifierHarness()
    harness.coordinator_node, harness.elsewhere = ELSEWHERE, coordinator_says(ErrorCode.TRANSACTION_ABORTABLE)
    expired = when_given(harness.ask(Operation.ADDED, T0, patience_ms=1_000))
    behind = when_given(harness.ask(Operation.ADDED, T0, patience_ms=30_000))
    harness.coordinator_harness.clock.advance(1_001)
    assert expired == [{T0: ErrorCode.NETWORK_EXCEPTION}] and len(harness.waiting) == 2
    late = harness.waiting.pop(0)
    with pytest.raises(StopIteration):
        late.send(None)
    assert not behind and harness.verifier.is_waiting("x")
    harness.elsewhere = coordinator_says(ErrorCode.NONE)
    harness.let_others_answer()
    assert behind == [{T0: ErrorCode.NONE}]


def test_a_request_that_cannot_be_asked_leaves_its_transactional_id_to_later_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = VerifierHarness()
    with monkeypatch.context() as broken:
        broken.setattr(harness.coordinator_harness.coordinator, "add_partitions", lambda *args: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            harness.ask(Operation.ADDED, T0)
    assert harness.ask(Operation.ADDED, T0) == {T0: ErrorCode.NONE}
