"""The state of one transactional id in `__transaction_state`: a value that each record replaces as a whole, and the records' bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.broker.coordinator.partition_log import TopicPartition
from ottla.broker.coordinator.shard import RecordCodec
from ottla.broker.transactions.transaction_states import (
    EPOCH_BUMP_SINCE,
    EPOCH_EXHAUSTED,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TRANSITIONS,
    State,
)
from ottla.protocol.features import transaction_log_value_version
from ottla.protocol.internal_topics.transaction_records import (
    TRANSACTION_RECORDS,
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)

Partitions: TypeAlias = frozenset[TopicPartition]
NO_PARTITIONS: Partitions = frozenset()
NO_TIMESTAMP = -1


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Returns the indexes of each topic's partitions, in order."""
    found: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        found.setdefault(topic, []).append(index)
    return found


@dataclass(frozen=True, slots=True)
class Transaction:
    transactional_id: str
    producer_id: int
    # The one before the last transition: equal but for the transition that changed it.
    previous_producer_id: int
    # The one that follows when the transaction has ended, -1 unless this one's epochs are used up.
    next_producer_id: int
    # -1 only for an id that is being created.
    producer_epoch: int
    timeout_ms: int
    state: State
    partitions: Partitions
    start_ms: int
    last_update_ms: int
    client_transaction_version: int

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.producer_epoch >= EPOCH_EXHAUSTED

    @property
    def bumps_epochs(self) -> bool:
        return self.client_transaction_version >= EPOCH_BUMP_SINCE

    @property
    def producer_after_end(self) -> tuple[int, int]:
        """Producer id and epoch of the next transaction, once this one has been prepared."""
        if self.bumps_epochs and self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch

    def to(self, state: State, now_ms: int, **changes: Any) -> Transaction:
        """Return the transaction after a transition."""
        assert state in TRANSITIONS[self.state], f"{self.transactional_id}: from {self.state.name} to {state.name}"
        changes.setdefault("next_producer_id", NO_PRODUCER_ID)
        after = replace(self, state=state, last_update_ms=now_ms, previous_producer_id=self.producer_id, **changes)
        assert after.producer_id >= 0 and after.producer_epoch >= 0
        return after

    def record(self) -> CoordinatorRecord:
        value = TransactionLogValue(
            producer_id=self.producer_id,
            previous_producer_id=self.previous_producer_id,
            next_producer_id=self.next_producer_id,
            producer_epoch=self.producer_epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=self.state,
            transaction_partitions=(
                None
                if self.state is State.EMPTY
                else [PartitionsSchema(topic, indexes) for topic, indexes in by_topic(self.partitions).items()]
            ),
            transaction_last_update_timestamp_ms=self.last_update_ms,
            transaction_start_timestamp_ms=self.start_ms,
            client_transaction_version=self.client_transaction_version,
        )
        return TransactionLogKey(transactional_id=self.transactional_id), value


def created(transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
    """An id before its first InitProducerId is through."""
    return Transaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        previous_producer_id=NO_PRODUCER_ID,
        next_producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        timeout_ms=timeout_ms,
        state=State.EMPTY,
        partitions=NO_PARTITIONS,
        start_ms=NO_TIMESTAMP,
        last_update_ms=now_ms,
        client_transaction_version=0,
    )


def from_record(key: TransactionLogKey, value: TransactionLogValue) -> Transaction:
    return Transaction(
        transactional_id=key.transactional_id,
        producer_id=value.producer_id,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=State(value.transaction_status),
        partitions=frozenset(
            (schema.topic, index) for schema in value.transaction_partitions or () for index in schema.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        last_update_ms=value.transaction_last_update_timestamp_ms,
        client_transaction_version=value.client_transaction_version,
    )


class TransactionRecordCodec(RecordCodec):
    """Codec of the transactions' records: value v1 since transaction.version 1, which adds tagged fields (KIP-890).

    `transaction_version()` is the cluster's finalized level.
    """

    types = TRANSACTION_RECORDS

    def __init__(self, transaction_version: Callable[[], int]) -> None:
        self._transaction_version = transaction_version

    def version_of(self, value: object) -> int:
        return transaction_log_value_version(self._transaction_version())

    def encode(self, key: object, value: object) -> tuple[bytes, bytes | None]:
        if isinstance(value, TransactionLogValue) and self.version_of(value) == 0:
            # Fields that the older format lacks are dropped from memory too, so that the state equals the replay of the log.
            value.previous_producer_id = value.next_producer_id = -1
            value.client_transaction_version = 0
        return super().encode(key, value)
