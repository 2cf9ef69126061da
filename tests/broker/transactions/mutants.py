"""Known mistakes of transaction coordinators, each with the invariants that notice it (`history.py`, `admissions.py`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ottla.broker.coordinator.context import CoordinatorContext
from ottla.broker.coordinator.outcome import Outcome
from ottla.broker.transactions import decisions
from ottla.broker.transactions import transaction as state
from ottla.broker.transactions.markers import MarkerSending
from ottla.broker.transactions.transaction import PREPARED, Transaction, TransactionState
from ottla.broker.transactions.transaction_shard import TransactionShard
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.producers.producer_states import ProducerStates
from tests.histories import mutant

_end = decisions.end
_prepared = decisions._prepared
_marker = MarkerSending._marker
_answered = MarkerSending._answered
_on_loaded = TransactionShard.on_loaded
_next_epoch = decisions._next_epoch
_to = Transaction.to


def answered_at_once(self: Any, response: Any, on_error: Any) -> Any:
    return response


def committed_at_once(self: Any, callback: Any) -> None:
    callback()


def id_before_state(shard: TransactionShard, transactional_id: str, producer_id: int, producer_epoch: int) -> Any:
    """KAFKA-18660."""
    transaction = shard.find(transactional_id)
    if transaction is None or transaction.producer_id != producer_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.producer_epoch != producer_epoch:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if transaction.state in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    return transaction


def fenced_while_markers_are_written(transaction: Transaction, request: Any) -> Any:
    is_new = transaction.producer_epoch != request.producer_epoch + 1
    if transaction.state in PREPARED and is_new:
        return ErrorCode.PRODUCER_FENCED
    return _decide_v2(transaction, request)


_decide_v2 = decisions._decide_v2


def without_bump(
    transaction: Transaction, to: TransactionState, now_ms: int, version: int, new_producer_id: int | None
) -> Any:
    after = _prepared(transaction, to, now_ms, version, new_producer_id)
    return replace(after, producer_epoch=transaction.producer_epoch)


def same_epoch(transaction: Transaction, last_epoch: int, expected: int | None, new_producer_id: int | None) -> Any:
    producer_id, epoch, last = _next_epoch(transaction, last_epoch, expected, new_producer_id)
    return (
        (producer_id, transaction.producer_epoch, last)
        if transaction.producer_epoch >= 0
        else (producer_id, epoch, last)
    )


def abort_what_was_prepared(self: TransactionShard, now_ms: int) -> Outcome:
    """Abort each prepared transaction after a failover, also those with a prepared commit."""
    for name, transaction in self.transactions.items():
        if transaction.state is TransactionState.PREPARE_COMMIT:
            self.transactions[name] = replace(transaction, state=TransactionState.PREPARE_ABORT)
    return _on_loaded(self, now_ms)


def leave_what_was_prepared(self: TransactionShard, now_ms: int) -> Outcome:
    _on_loaded(self, now_ms)
    return Outcome()


def without_time_outs(self: TransactionShard) -> None:
    return None


def done_after_the_first(self: MarkerSending) -> None:
    if self._done is not None:
        done, self._done = self._done, None
        done()


def marker_twice(self: MarkerSending, asked: Any, results: Any) -> None:
    """Ignore the first answer about markers."""
    is_first = "was_answered" not in vars(self)
    vars(self)["was_answered"] = True
    _answered(self, asked, {} if is_first else results)


def add_nothing(shard: Any, now_ms: int, *request: Any) -> Outcome:
    outcome = _add(shard, now_ms, *request)
    return Outcome(response=outcome.response)


_add = decisions.add


def add_instead(
    shard: Any, now_ms: int, transactional_id: str, producer_id: int, epoch: int, added: Any, version: int
) -> Outcome:
    """Forget the partitions that were added before."""
    transaction = decisions._transaction_of(shard, transactional_id, producer_id, epoch)
    outcome = _add(shard, now_ms, transactional_id, producer_id, epoch, added, version)
    if not outcome.records or transaction.state is not TransactionState.ONGOING:
        return outcome
    after = transaction.to(
        TransactionState.ONGOING,
        now_ms,
        partitions=added,
        start_ms=transaction.start_ms,
        client_transaction_version=version,
    )
    return Outcome([after.record()], ErrorCode.NONE)


def lost_against_abort_is_done(transaction: Transaction, request: Any) -> Any:
    """Confirm a commit although the coordinator has aborted the transaction."""
    decision = _decide_v2(transaction, request)
    if (
        transaction.state is TransactionState.COMPLETE_ABORT
        and decision is ErrorCode.PRODUCER_FENCED
        and request.committed
    ):
        return state.End.DONE
    return decision


MUTANTS = {
    "answered-before-commit": mutant(
        "an answer leaves before its records are committed",
        "29 30 34",
        (CoordinatorContext, "when_seen_is_committed", answered_at_once),
    ),
    "markers-before-commit": mutant(
        "markers are written before the outcome is committed",
        "35",
        (CoordinatorContext, "_when_committed", committed_at_once),
    ),
    "id-before-state": mutant(
        "a producer id is compared before the state is looked at (KAFKA-18660)",
        "34",
        (decisions, "_transaction_of", id_before_state),
    ),
    "fenced-while-markers-are-written": mutant(
        "the end of the next transaction is fatal while the markers of the last are written",
        "34",
        (decisions, "_decide_v2", fenced_while_markers_are_written),
    ),
    "end-without-epoch-bump": mutant(
        "version 2 does not raise the epoch with the end of a transaction",
        "29 30 33 34",
        (decisions, "_prepared", without_bump),
    ),
    "init-without-epoch-bump": mutant(
        "a new producer gets the epoch of the one before", "29", (decisions, "_next_epoch", same_epoch)
    ),
    "commit-becomes-abort": mutant(
        "a prepared commit is aborted by the next coordinator",
        "21 35",
        (TransactionShard, "on_loaded", abort_what_was_prepared),
    ),
    "prepared-left-after-load": mutant(
        "the next coordinator does not finish what was prepared",
        "32",
        (TransactionShard, "on_loaded", leave_what_was_prepared),
    ),
    "time-outs-not-armed-after-load": mutant(
        "open transactions never time out", "32", (TransactionShard, "_schedule_abort", without_time_outs)
    ),
    "complete-after-first-marker": mutant(
        "a transaction counts as complete before all its markers are written",
        "33 32",
        (MarkerSending, "_check_done", done_after_the_first),
    ),
    "marker-written-twice": mutant(
        "a marker that was written is written again", "33", (MarkerSending, "_answered", marker_twice)
    ),
    "partitions-forgotten": mutant(
        "a partition that is added takes the place of those before", "30 33", (decisions, "add", add_instead)
    ),
    "partitions-not-logged": mutant(
        "AddPartitionsToTxn is answered and writes nothing", "30 34", (decisions, "add", add_nothing)
    ),
    "lost-commit-confirmed": mutant(
        "a commit that lost against the time-out is confirmed",
        "30",
        (decisions, "_decide_v2", lost_against_abort_is_done),
    ),
}


def no_ticket_needed(self: ProducerStates) -> bool:
    return False


_end_transaction = ProducerStates.end_transaction


def keep_the_ticket(self: ProducerStates, producer_id: int, *marker: Any) -> Any:
    ticket = self._verifications.get(producer_id)
    aborted = _end_transaction(self, producer_id, *marker)
    if ticket is not None:
        self._verifications[producer_id] = ticket
    return aborted


#: Mutants for tests/broker/transactions/admissions.py.
ADMISSION_MUTANTS = {
    "ticket-not-needed": mutant(
        "a transactional batch is appended without a word of the coordinator",
        "33",
        (ProducerStates, "requires_verification", property(no_ticket_needed, lambda self, value: None)),
    ),
    "ticket-not-void-at-the-marker": mutant(
        "the coordinator's word counts after the transaction has ended",
        "33",
        (ProducerStates, "end_transaction", keep_the_ticket),
    ),
}
