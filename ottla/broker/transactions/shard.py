"""One partition of `__transaction_state` as state: its transactional ids.

`replay` is where hard state changes. Decisions are functions on the shard in modules of their own (`begin`, `partitions`,
`end`, `expiry`, `describe`), which import this one; what the runtime calls is coordinator_shard.py. Soft state is what a failover may forget: the epoch before
the last InitProducerId (a retry of that call then fences its producer, as with Kafka), and which markers are written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple, Protocol

from ottla.broker.coordinator.client_errors import unreadable
from ottla.broker.coordinator.partition_log import TopicPartition
from ottla.broker.coordinator.timers import Timers
from ottla.broker.transactions.config import TransactionConfig
from ottla.broker.transactions.transaction import Transaction, from_record
from ottla.protocol.internal_topics.transaction_records import TransactionLogKey, TransactionLogValue

log = logging.getLogger(__name__)


class ProducerIdNeeded(Exception):
    """The decision needs a producer id that was not allocated yet: decide again with one."""


class Coordinating(Protocol):
    """The interface of a shard to the rest of the coordinator."""

    def transaction_version(self) -> int:
        """Returns the finalized level of the feature."""
        ...

    def complete(self, transaction: Transaction) -> None:
        """Write the markers of a prepared transaction whose record is committed, and then its completion."""
        ...

    def abort(self, transaction: Transaction) -> None:
        """The transaction has run out of time."""
        ...

    def unwritten_markers(self, transactional_id: str) -> frozenset[TopicPartition] | None:
        """Return the partitions whose marker is not written yet, or None if no markers of the id are being written."""
        ...


class LastEpoch(NamedTuple):
    """The producer's epoch before the current one. It is void when the producer id or the epoch has changed again."""

    producer_id: int
    producer_epoch: int
    last_producer_epoch: int


class TransactionShard:
    """The transactions of one partition. `wall_ms` is for what timers set off; requests bring their own time."""

    def __init__(
        self, timers: Timers, config: TransactionConfig, wall_ms: Callable[[], int], coordinating: Coordinating
    ) -> None:
        self.timers = timers
        self.config = config
        self.wall_ms = wall_ms
        self.coordinating = coordinating
        self.transactions: dict[str, Transaction] = {}
        self.last_epochs: dict[str, LastEpoch] = {}
        # Ids that are refused: their newest record could not be replayed.
        self.unreadable: set[str] = set()

    # ---- hard state

    def replay(self, offset: int, producer_id: int, key: TransactionLogKey, value: TransactionLogValue | None) -> None:
        self.unreadable.discard(key.transactional_id)
        if value is None:
            self.transactions.pop(key.transactional_id, None)
            self.last_epochs.pop(key.transactional_id, None)
        else:
            after = self.transactions[key.transactional_id] = from_record(key, value)
            log.debug("TransactionalId %s is now in state %s", key.transactional_id, after.state.name)

    def replay_failed(self, key: TransactionLogKey) -> None:
        self.transactions.pop(key.transactional_id, None)
        self.unreadable.add(key.transactional_id)

    def find(self, transactional_id: str) -> Transaction | None:
        """KafkaError while its record could not be replayed: its producer id and epoch, which fence others, are unknown.

        A new producer id would fence rightly, but a commit that was acknowledged may wait for its markers, and a newer version
        can read the record. `ottla transaction forget` is the remedy of an operator who knows that none will.
        """
        if transactional_id in self.unreadable:
            raise unreadable(f"transactional id {transactional_id}")
        return self.transactions.get(transactional_id)

    def replay_end_transaction_marker(self, producer_id: int, committed: bool) -> None:
        """Does nothing: no transaction writes to this topic."""

    # ---- soft state

    def last_epoch(self, transaction: Transaction) -> int:
        """The epoch before the current one, if it was raised for the same producer, and here; -1 otherwise."""
        known = self.last_epochs.get(transaction.transactional_id)
        if known is None or known[:2] != (transaction.producer_id, transaction.producer_epoch):
            return -1
        return known.last_producer_epoch

    def remember_epoch(self, transactional_id: str, producer_id: int, epoch: int, last_epoch: int) -> None:
        self.last_epochs[transactional_id] = LastEpoch(producer_id, epoch, last_epoch)
