"""The end of a transaction: prepare its outcome, have the markers written, complete it.

    EndTxn, timeout, new producer    -> PrepareCommit | PrepareAbort is appended         here nothing can go back
    that record is committed         -> markers to every partition that takes part       markers.py
    all markers are committed        -> CompleteCommit | CompleteAbort is appended       `complete`

The client is answered at the second step. Version 2 raises the epoch with the first (state.py says why), to a new producer
id when the epochs are used up: the markers still carry the old id with its last epoch, the next transaction the new one.
"""

from __future__ import annotations

from typing import TypeVar

from ottla.broker.coordinator.outcome import Outcome, Unasked
from ottla.broker.transactions.shard import ProducerIdNeeded, TransactionShard
from ottla.broker.transactions.state import (
    COMPLETION,
    END_TXN_V1,
    END_TXN_V2,
    EPOCH_BUMP_SINCE,
    EPOCH_EXHAUSTED,
    EPOCH_MAX,
    NO_PRODUCER_ID,
    PREPARED,
    End,
    State,
)
from ottla.broker.transactions.transaction import NO_PARTITIONS, Transaction
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

T = TypeVar("T")


def end(
    shard: TransactionShard,
    now_ms: int,
    request: EndTxnRequest,
    client_transaction_version: int,
    new_producer_id: int | None,
) -> Outcome[EndTxnResponse]:
    """Decide an EndTxn of a client. `new_producer_id` is used when the epochs of the producer id are exhausted."""
    transaction = shard.find(request.transactional_id)
    if transaction is None:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if client_transaction_version < EPOCH_BUMP_SINCE:
        decision = _decide_v1(transaction, request)
    else:
        decision = _decide_v2(transaction, request)
    if type(decision) is ErrorCode:
        raise KafkaError(decision)
    if decision is End.DONE:
        return Outcome(response=_ended(transaction, client_transaction_version))
    state = State.PREPARE_COMMIT if request.committed else State.PREPARE_ABORT
    after = _prepared(transaction, state, now_ms, client_transaction_version, new_producer_id)
    return _prepare(shard, transaction, after, _ended(after, client_transaction_version))


def _decide_v1(transaction: Transaction, request: EndTxnRequest) -> End | ErrorCode:
    if transaction.producer_id != request.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if transaction.producer_epoch != request.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return END_TXN_V1[transaction.state, request.committed]


def _decide_v2(transaction: Transaction, request: EndTxnRequest) -> End | ErrorCode:
    """Distinguishes a retry from the end of the next transaction by the epoch."""
    epoch = request.producer_epoch
    if transaction.state in PREPARED and (request.producer_id, epoch) == transaction.producer_after_end:
        # Before ids are compared: the next transaction may have a new one already.
        return END_TXN_V2[transaction.state, request.committed, False]
    over_new_id = (
        request.producer_id == transaction.previous_producer_id
        and epoch == EPOCH_EXHAUSTED
        and transaction.producer_epoch == 0
    )
    if transaction.producer_id != request.producer_id and not over_new_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    is_retry = over_new_id or transaction.producer_epoch == epoch + 1
    if not is_retry and epoch != transaction.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return END_TXN_V2.get((transaction.state, request.committed, is_retry), ErrorCode.PRODUCER_FENCED)


def _ended(transaction: Transaction, client_transaction_version: int) -> EndTxnResponse:
    """Returns the response; v5 has the producer epoch of the next transaction."""
    if client_transaction_version < EPOCH_BUMP_SINCE:
        return EndTxnResponse()
    producer_id, producer_epoch = transaction.producer_after_end
    return EndTxnResponse(producer_id=producer_id, producer_epoch=producer_epoch)


def abort_and_fence(
    shard: TransactionShard, now_ms: int, transaction: Transaction, new_producer_id: int | None, response: T
) -> Outcome[T]:
    """Abort an open transaction without its producer, and fence the producer by a new epoch."""
    version = shard.coordinating.transaction_version()
    if version >= EPOCH_BUMP_SINCE:
        after = _prepared(transaction, State.PREPARE_ABORT, now_ms, version, new_producer_id)
    else:
        epoch = min(transaction.producer_epoch + 1, EPOCH_MAX)
        after = transaction.to(State.PREPARE_ABORT, now_ms, producer_epoch=epoch, client_transaction_version=0)
    return _prepare(shard, transaction, after, response)


def abort_timed_out(
    shard: TransactionShard, now_ms: int, seen: Transaction, new_producer_id: int | None
) -> Outcome[ErrorCode]:
    """Abort the transaction, unless its state has changed meanwhile."""
    transaction = shard.find(seen.transactional_id)
    if transaction != seen:
        return Outcome(response=ErrorCode.NONE)
    return abort_and_fence(shard, now_ms, transaction, new_producer_id, ErrorCode.NONE)


def _prepared(
    transaction: Transaction, state: State, now_ms: int, client_transaction_version: int, new_producer_id: int | None
) -> Transaction:
    # Aborting what never began still needs a start, which Kafka's readers of the record insist on.
    start_ms = transaction.start_ms if transaction.state is State.ONGOING else now_ms
    if client_transaction_version < EPOCH_BUMP_SINCE:
        return transaction.to(state, now_ms, client_transaction_version=0)
    next_producer_id = NO_PRODUCER_ID
    if transaction.is_epoch_exhausted:
        if new_producer_id is None:
            raise ProducerIdNeeded
        next_producer_id = new_producer_id
    return transaction.to(
        state,
        now_ms,
        producer_epoch=min(transaction.producer_epoch + 1, EPOCH_MAX),
        next_producer_id=next_producer_id,
        start_ms=start_ms,
        client_transaction_version=client_transaction_version,
    )


def _prepare(shard: TransactionShard, before: Transaction, after: Transaction, response: T) -> Outcome[T]:
    def remember() -> Unasked:
        if after.bumps_epochs:
            shard.remember_epoch(after.transactional_id, *after.producer_after_end, before.producer_epoch)
        return Outcome()

    def have_markers_written() -> None:
        # Only the completion leaves the prepared states, and the record in the log decides.
        shard.coordinating.complete(shard.transactions[after.transactional_id])

    return Outcome([after.record()], response, then=remember, committed=have_markers_written)


def complete(shard: TransactionShard, now_ms: int, prepared: Transaction) -> Unasked:
    """All markers are written."""
    transaction = shard.find(prepared.transactional_id)
    if transaction is None or transaction.state not in PREPARED or transaction != prepared:
        # Another marker sender has completed the transaction: after two failovers, two senders may write the markers.
        return Outcome()
    producer_id, producer_epoch = transaction.producer_after_end
    after = transaction.to(
        COMPLETION[transaction.state],
        now_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        partitions=NO_PARTITIONS,
    )
    return Outcome([after.record()])
