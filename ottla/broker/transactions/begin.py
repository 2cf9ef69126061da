"""InitProducerId for a transactional id: a producer starts, and the former one with that id is fenced.

A new epoch makes every request of the former holder a stale one. An open transaction of theirs is aborted first, and the
caller must retry (CONCURRENT_TRANSACTIONS), so that it starts with nothing undecided. A producer that names its id
and epoch goes on after an error (KIP-360): fenced unless it is the newest one, and answered as before when it asks twice.
"""

from __future__ import annotations

import logging

from ottla.broker.coordinator.outcome import Outcome, Unasked
from ottla.broker.transactions import end
from ottla.broker.transactions.shard import ProducerIdNeeded, TransactionShard
from ottla.broker.transactions.state import EPOCH_EXHAUSTED, NO_PRODUCER_EPOCH, PREPARED, State
from ottla.broker.transactions.transaction import NO_PARTITIONS, NO_TIMESTAMP, Transaction, created
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

log = logging.getLogger(__name__)


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
    if transaction.state is State.ONGOING:
        log.info(
            "Fencing the producer of transactionalId %s (producerId %d, epoch %d), whose transaction is ongoing",
            transaction.transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
        )
        response = InitProducerIdResponse(
            error_code=ErrorCode.CONCURRENT_TRANSACTIONS, producer_id=-1, producer_epoch=-1
        )
        return end.abort_and_fence(shard, now_ms, transaction, new_producer_id, response)
    producer_id, epoch, last_epoch = _next_epoch(
        transaction, shard.last_epoch(transaction), None if expected is None else expected[1], new_producer_id
    )
    after = transaction.to(
        State.EMPTY,
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
    """Returns True if the producer id is a known one of the transactional id. The epoch is checked later.

    The id before the current one is known too if its epochs were used up: the answer with the new one may have been lost.
    """
    return (
        transaction.producer_epoch == NO_PRODUCER_EPOCH
        or producer_id == transaction.producer_id
        or (producer_id == transaction.previous_producer_id and epoch >= EPOCH_EXHAUSTED)
    )


def _next_epoch(
    transaction: Transaction, last_epoch: int, expected: int | None, new_producer_id: int | None
) -> tuple[int, int, int]:
    """(producer id, epoch, the epoch before) that the caller gets."""
    producer_id, epoch = transaction.producer_id, transaction.producer_epoch
    if transaction.is_epoch_exhausted and expected in (None, epoch):
        return _needed(new_producer_id), 0, NO_PRODUCER_EPOCH if expected is None else epoch
    if expected is None:
        return producer_id, epoch + 1, NO_PRODUCER_EPOCH
    if epoch == NO_PRODUCER_EPOCH or (expected == epoch and not transaction.is_epoch_exhausted):
        return producer_id, epoch + 1, epoch
    if expected == last_epoch:
        # Asked before, and the answer was lost. Another producer would have set the last epoch to -1.
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
