"""Decisions about a transaction on requests of producers: InitProducerId, AddPartitionsToTxn and EndTxn, as functions of the shard.

InitProducerId: a new epoch makes every request of the former holder a stale one. An open transaction of theirs is aborted first, and
the caller must retry (CONCURRENT_TRANSACTIONS), so that it starts with nothing undecided. A producer that names its id and epoch goes
on after an error (KIP-360): fenced unless it is the newest one, and answered as before when it asks twice.

The end of a transaction:

    EndTxn, timeout, new producer    -> PrepareCommit | PrepareAbort is appended         here nothing can go back
    that record is committed         -> markers to every partition that takes part       markers.py
    all markers are committed        -> CompleteCommit | CompleteAbort is appended       `complete`

The client is answered at the second step. Version 2 raises the epoch with the first (transaction.py says why), to a new producer
id when the epochs are used up: the markers still carry the old id with its last epoch, the next transaction the new one.
"""

from __future__ import annotations

import logging
from typing import TypeVar

from ottla.broker.coordinator.outcome import Outcome, Unasked
from ottla.broker.coordinator.partition_log import TopicPartition
from ottla.broker.transactions.transaction import (
    COMPLETION,
    END_TXN_V1,
    END_TXN_V2,
    EPOCH_BUMP_SINCE,
    EPOCH_EXHAUSTED,
    EPOCH_MAX,
    IDLE,
    NO_PARTITIONS,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    PREPARED,
    End,
    Partitions,
    Transaction,
    TransactionState,
    created,
)
from ottla.broker.transactions.transaction_shard import ProducerIdNeeded, TransactionShard
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

log = logging.getLogger(__name__)

T = TypeVar("T")

# ---- InitProducerId


def init_producer_id(
    shard: TransactionShard, now_ms: int, request: InitProducerIdRequest, new_producer_id: int | None
) -> Outcome[InitProducerIdResponse]:
    """InitProducerId; `new_producer_id` is used when the id is new here, or its producer id's epochs are used up."""
    assert request.transactional_id
    transaction = shard.find(request.transactional_id)
    if transaction is None:
        shard.config.transactional_ids.check(len(shard.transactions), f"transactional id {request.transactional_id}")
        producer_id = _needed(new_producer_id)
        transaction = created(request.transactional_id, producer_id, request.transaction_timeout_ms, now_ms)
    expected = None if request.producer_id == -1 else (request.producer_id, request.producer_epoch)
    if transaction.state in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if expected is not None and not _is_known(transaction, *expected):
        _say_fenced(transaction, *expected)
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if transaction.state is TransactionState.ONGOING:
        shard.coordinating.stories.logger_of(transaction.transactional_id, log).info(
            "Fencing the producer of transactionalId %s (producerId %d, epoch %d), whose transaction is ongoing",
            transaction.transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
        )
        response = InitProducerIdResponse(
            error_code=ErrorCode.CONCURRENT_TRANSACTIONS, producer_id=-1, producer_epoch=-1
        )
        return abort_and_fence(shard, now_ms, transaction, new_producer_id, response)
    producer_id, epoch, last_epoch = _next_epoch(
        transaction, shard.last_epoch(transaction), None if expected is None else expected[1], new_producer_id
    )
    after = transaction.to(
        TransactionState.EMPTY,
        now_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout_ms=request.transaction_timeout_ms,
        partitions=NO_PARTITIONS,
        start_ms=NO_TIMESTAMP,
    )

    def remember() -> Unasked:
        shard.remember_epoch(after.transactional_id, producer_id, epoch, last_epoch)
        log.info(
            "Initialized transactionalId %s with producerId %d and producer epoch %d",
            after.transactional_id,
            producer_id,
            epoch,
        )
        return Outcome()

    response = InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)
    return Outcome([after.record()], response, then=remember)


def _is_known(transaction: Transaction, producer_id: int, epoch: int) -> bool:
    """Return True if the producer id is a known one of the transactional id. The epoch is checked later.

    The id before the current one is known too if its epochs were used up: the response with the new one may have been lost.
    """
    return (
        transaction.producer_epoch == NO_PRODUCER_EPOCH
        or producer_id == transaction.producer_id
        or (producer_id == transaction.previous_producer_id and epoch >= EPOCH_EXHAUSTED)
    )


def _next_epoch(
    transaction: Transaction, last_epoch: int, expected: int | None, new_producer_id: int | None
) -> tuple[int, int, int]:
    """Return (producer id, epoch, the epoch before) that the caller gets."""
    producer_id, epoch = transaction.producer_id, transaction.producer_epoch
    if transaction.is_epoch_exhausted and expected in (None, epoch):
        return _needed(new_producer_id), 0, NO_PRODUCER_EPOCH if expected is None else epoch
    if expected is None:
        return producer_id, epoch + 1, NO_PRODUCER_EPOCH
    if epoch == NO_PRODUCER_EPOCH or (expected == epoch and not transaction.is_epoch_exhausted):
        return producer_id, epoch + 1, epoch
    if expected == last_epoch:
        # The producer has asked before, and the response was lost. Another producer would have set the last epoch to -1.
        return producer_id, epoch, last_epoch
    _say_fenced(transaction, producer_id, expected)
    raise KafkaError(ErrorCode.PRODUCER_FENCED)


def _say_fenced(transaction: Transaction, producer_id: int, epoch: int) -> None:
    log.info(
        "InitProducerId of transactionalId %s with producerId %d and epoch %d is fenced by producerId %d and epoch %d",
        transaction.transactional_id,
        producer_id,
        epoch,
        transaction.producer_id,
        transaction.producer_epoch,
    )


def _needed(producer_id: int | None) -> int:
    if producer_id is None:
        raise ProducerIdNeeded
    return producer_id


# ---- the partitions of a transaction (KIP-890: their leaders verify them)


def add(
    shard: TransactionShard,
    now_ms: int,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Partitions,
    client_transaction_version: int,
) -> Outcome[ErrorCode]:
    """Add partitions to the transaction; the first ones begin it. The response is NONE."""
    transaction = _transaction_of(shard, transactional_id, producer_id, producer_epoch)
    if transaction.state is TransactionState.ONGOING and partitions <= transaction.partitions:
        return Outcome(response=ErrorCode.NONE)
    after = transaction.to(
        TransactionState.ONGOING,
        now_ms,
        partitions=transaction.partitions | partitions,
        start_ms=now_ms if transaction.state in IDLE else transaction.start_ms,
        client_transaction_version=client_transaction_version,
    )
    return Outcome([after.record()], ErrorCode.NONE)


def verify(
    shard: TransactionShard, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Partitions
) -> dict[TopicPartition, ErrorCode]:
    """Return NONE for partitions of the transaction, and for others an error with which the producer has to abort."""
    transaction = _transaction_of(shard, transactional_id, producer_id, producer_epoch)
    return {
        tp: ErrorCode.NONE if tp in transaction.partitions else ErrorCode.TRANSACTION_ABORTABLE for tp in partitions
    }


def _transaction_of(
    shard: TransactionShard, transactional_id: str, producer_id: int, producer_epoch: int
) -> Transaction:
    transaction = shard.find(transactional_id)
    if transaction is None:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    # This comes before ids are compared: a producer whose epochs are used up is answered with its next id while the markers are still
    # being written, and begins its next transaction with it. In Java clients INVALID_PRODUCER_ID_MAPPING is fatal.
    if transaction.state in PREPARED and (producer_id, producer_epoch) == transaction.producer_after_end:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if transaction.producer_id != producer_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.producer_epoch != producer_epoch:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if transaction.state in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    return transaction


# ---- the end of a transaction


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
    state = TransactionState.PREPARE_COMMIT if request.committed else TransactionState.PREPARE_ABORT
    after = _prepared(transaction, state, now_ms, client_transaction_version, new_producer_id)
    return _prepare(shard, transaction, after, _ended(after, client_transaction_version))


def _decide_v1(transaction: Transaction, request: EndTxnRequest) -> End | ErrorCode:
    if transaction.producer_id != request.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if transaction.producer_epoch != request.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return END_TXN_V1[transaction.state, request.committed]


def _decide_v2(transaction: Transaction, request: EndTxnRequest) -> End | ErrorCode:
    """Distinguish a retry from the end of the next transaction by the epoch."""
    epoch = request.producer_epoch
    if transaction.state in PREPARED and (request.producer_id, epoch) == transaction.producer_after_end:
        # This comes before ids are compared: the next transaction may have a new one already.
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
    """Return the response; v5 has the producer epoch of the next transaction."""
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
        after = _prepared(transaction, TransactionState.PREPARE_ABORT, now_ms, version, new_producer_id)
    else:
        epoch = min(transaction.producer_epoch + 1, EPOCH_MAX)
        after = transaction.to(
            TransactionState.PREPARE_ABORT, now_ms, producer_epoch=epoch, client_transaction_version=0
        )
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
    transaction: Transaction,
    state: TransactionState,
    now_ms: int,
    client_transaction_version: int,
    new_producer_id: int | None,
) -> Transaction:
    # Aborting what never began still needs a start, which Kafka's readers of the record insist on.
    start_ms = transaction.start_ms if transaction.state is TransactionState.ONGOING else now_ms
    if client_transaction_version < EPOCH_BUMP_SINCE:
        return transaction.to(state, now_ms, client_transaction_version=0)
    next_producer_id = _needed(new_producer_id) if transaction.is_epoch_exhausted else NO_PRODUCER_ID
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
    """Complete the transaction, because all markers are written."""
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
