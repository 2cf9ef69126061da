"""Entries of the records in `__transaction_state` in the stories of transactional ids.

A transaction that begins and is ended by its producer is three entries that grow. Others have entries of their own: a new epoch,
which fences the producer before, and an abort.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.broker.coordinator.stories import CoordinatorStories, RecordAccount
from ottla.broker.transactions.transaction import TransactionState
from ottla.protocol.errors import ErrorCode

REMOVED = RecordAccount("The transactional id was removed", lambda key, value: ())
#: Errors of a producer that is not the newest one, or acts out of turn. It gets them again and again, if it does not stop.
REJECTED = "The producer with producerId %d and epoch %d was answered %s"
FINAL_ERRORS = frozenset({
    ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_TXN_STATE,
})  # fmt: skip
#: The states of a transaction that is ended by its producer, and those after any end.
FREQUENT = frozenset({
    TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT,
})  # fmt: skip


def _facts(key: Any, value: Any) -> tuple[object, ...]:
    partitions = sum(len(topic.partition_ids) for topic in value.transaction_partitions or ())
    return value.producer_id, value.producer_epoch, partitions


FACTS = {
    state: RecordAccount(
        f"The transaction is in state {state.kafka_name}: producerId %d, epoch %d, %d partitions",
        _facts,
        is_frequent=state in FREQUENT,
    )
    for state in TransactionState
}


class TransactionStories(CoordinatorStories):
    """The stories of a broker's transactional ids."""

    def subject_of(self, key: Any) -> str:
        transactional_id: str = key.transactional_id
        return transactional_id

    def appended(self, records: Sequence[CoordinatorRecord]) -> None:
        key: Any
        value: Any
        for key, value in records:
            facts = REMOVED if value is None else FACTS[TransactionState(value.transaction_status)]
            self.add_record(key.transactional_id, facts, key, value)

    def answered(self, transactional_id: str, producer_id: int, epoch: int, error: ErrorCode) -> None:
        """A request was rejected: it is added if that is final for its producer. The cause is that of the request under way."""
        if error in FINAL_ERRORS:
            self.grow(transactional_id, REJECTED, (producer_id, epoch, error.name))
