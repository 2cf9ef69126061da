"""The state of one transactional id in `__transaction_state`: a value that each record replaces as a whole, and the records' bytes.

Its machine is data: the states, the transitions (drawn in docs/dev/STATES.md), and what EndTxn means in each of them.

A prepared outcome is never turned round (invariant 35): from PrepareCommit there is one way out, and it is taken again
after every failover until all markers are written. Dead and PrepareEpochFence are Kafka's, in memory there and never
written; here an id that expires is gone at once, and fencing is one step.

The version of EndTxn shows a client's transaction version: v5 is version 2, where every end of a transaction raises
the epoch (KIP-890), so that a late request of the last transaction can never count as one of the next transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from enum import Enum, IntEnum
from typing import Any, TypeAlias

from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.broker.coordinator.partition_log import TopicPartition
from ottla.broker.coordinator.shard import RecordCodec
from ottla.protocol.errors import ErrorCode
from ottla.protocol.features import transaction_log_value_version
from ottla.protocol.internal_topics.coordinator_records import (
    TRANSACTION_RECORDS,
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from ottla.protocol.slotted import frozen

# Producers get epochs up to the one before the last; the last one is reserved for fencing.
EPOCH_MAX = 0x7FFF
EPOCH_EXHAUSTED = EPOCH_MAX - 1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1

# Transaction version (KIP-890) from which the end of a transaction raises the producer's epoch.
EPOCH_BUMP_SINCE = 2


class TransactionState(IntEnum):
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def kafka_name(self) -> str:
        """Return the name in DescribeTransactions and ListTransactions."""
        return self.name.title().replace("_", "")


BY_NAME = {state.kafka_name: state for state in TransactionState}

IDLE = frozenset({TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
PREPARED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})

_FROM_IDLE = {
    TransactionState.EMPTY: "InitProducerId: a new producer epoch",
    TransactionState.ONGOING: "a partition, or the offsets of a group, is added",
    # The client fences itself after a failure with an unknown outcome.
    TransactionState.PREPARE_ABORT: "a client of version 2 aborts without having added anything",
}
TRANSITIONS: dict[TransactionState, dict[TransactionState, str]] = {
    TransactionState.EMPTY: _FROM_IDLE,
    TransactionState.ONGOING: {
        TransactionState.ONGOING: "another partition is added",
        TransactionState.PREPARE_COMMIT: "EndTxn: commit",
        TransactionState.PREPARE_ABORT: "EndTxn: abort; transaction.timeout.ms; or a new producer with the same id",
    },
    TransactionState.PREPARE_COMMIT: {TransactionState.COMPLETE_COMMIT: "all markers are written"},
    TransactionState.PREPARE_ABORT: {TransactionState.COMPLETE_ABORT: "all markers are written"},
    TransactionState.COMPLETE_COMMIT: _FROM_IDLE,
    TransactionState.COMPLETE_ABORT: _FROM_IDLE,
}

COMPLETION = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}


class End(Enum):
    """The result of an EndTxn request that is not rejected."""

    PREPARE = "prepare"  # write the outcome, then the markers
    DONE = "done"  # it is complete already: answer without a record


_INVALID = ErrorCode.INVALID_TXN_STATE
_BUSY = ErrorCode.CONCURRENT_TRANSACTIONS

# (state, commit?) -> outcome, for clients before version 2.
END_TXN_V1: dict[tuple[TransactionState, bool], End | ErrorCode] = {
    (TransactionState.EMPTY, True): _INVALID,
    (TransactionState.EMPTY, False): _INVALID,
    (TransactionState.ONGOING, True): End.PREPARE,
    (TransactionState.ONGOING, False): End.PREPARE,
    (TransactionState.PREPARE_COMMIT, True): _BUSY,
    (TransactionState.PREPARE_COMMIT, False): _BUSY,
    (TransactionState.PREPARE_ABORT, True): _BUSY,
    (TransactionState.PREPARE_ABORT, False): _BUSY,
    (TransactionState.COMPLETE_COMMIT, True): End.DONE,
    (TransactionState.COMPLETE_COMMIT, False): _INVALID,
    (TransactionState.COMPLETE_ABORT, True): _INVALID,
    (TransactionState.COMPLETE_ABORT, False): End.DONE,
}

# (state, commit?, retry?) -> outcome, for clients of version 2. A retry names the epoch before the one that the end of the
# transaction raised; in Ongoing and Empty nothing was raised, so there is none. In Prepare* what is no retry is the end of
# the next transaction: its producer was answered with the new epoch before the markers are written, and has to wait.
END_TXN_V2: dict[tuple[TransactionState, bool, bool], End | ErrorCode] = {
    (TransactionState.EMPTY, True, False): _INVALID,
    (TransactionState.EMPTY, False, False): End.PREPARE,
    (TransactionState.ONGOING, True, False): End.PREPARE,
    (TransactionState.ONGOING, False, False): End.PREPARE,
    (TransactionState.PREPARE_COMMIT, True, False): _BUSY,
    (TransactionState.PREPARE_COMMIT, True, True): _BUSY,
    (TransactionState.PREPARE_COMMIT, False, False): _BUSY,
    (TransactionState.PREPARE_COMMIT, False, True): _BUSY,
    (TransactionState.PREPARE_ABORT, True, False): _BUSY,
    (TransactionState.PREPARE_ABORT, True, True): _BUSY,
    (TransactionState.PREPARE_ABORT, False, False): _BUSY,
    (TransactionState.PREPARE_ABORT, False, True): _BUSY,
    (TransactionState.COMPLETE_COMMIT, True, False): _INVALID,
    (TransactionState.COMPLETE_COMMIT, True, True): End.DONE,
    (TransactionState.COMPLETE_COMMIT, False, False): End.PREPARE,
    (TransactionState.COMPLETE_COMMIT, False, True): _INVALID,
    (TransactionState.COMPLETE_ABORT, True, False): _INVALID,
    # A commit that came after the coordinator's own abort (timeout). Kafka 4.3 returns INVALID_TXN_STATE, which is fatal
    # to clients; they recover from this one (KAFKA-20785, invariant 34).
    (TransactionState.COMPLETE_ABORT, True, True): ErrorCode.PRODUCER_FENCED,
    (TransactionState.COMPLETE_ABORT, False, False): End.PREPARE,
    (TransactionState.COMPLETE_ABORT, False, True): End.DONE,
}


Partitions: TypeAlias = frozenset[TopicPartition]
NO_PARTITIONS: Partitions = frozenset()
NO_TIMESTAMP = -1


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the indexes of each topic's partitions, in order."""
    found: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        found.setdefault(topic, []).append(index)
    return found


@frozen
class Transaction:
    transactional_id: str
    producer_id: int
    # The state before the last transition: equal except for the fields that the transition changed.
    previous_producer_id: int
    # The one that follows when the transaction has ended, -1 unless this one's epochs are used up.
    next_producer_id: int
    # -1 only for an id that is being created.
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
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

    def to(self, state: TransactionState, now_ms: int, **changes: Any) -> Transaction:
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
                if self.state is TransactionState.EMPTY
                else [PartitionsSchema(topic, indexes) for topic, indexes in by_topic(self.partitions).items()]
            ),
            transaction_last_update_timestamp_ms=self.last_update_ms,
            transaction_start_timestamp_ms=self.start_ms,
            client_transaction_version=self.client_transaction_version,
        )
        return TransactionLogKey(transactional_id=self.transactional_id), value


def created(transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
    """Return the transaction of an id whose first InitProducerId is being decided."""
    return Transaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        previous_producer_id=NO_PRODUCER_ID,
        next_producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
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
        state=TransactionState(value.transaction_status),
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
