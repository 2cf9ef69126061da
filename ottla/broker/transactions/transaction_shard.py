"""One partition of `__transaction_state` as state: its transactional ids.

`replay` is where hard state changes. Decisions are functions on the shard (`decisions.py`, `transaction_coordinator.py`),
except for those of its timers: the end of transactions that are open for too long, and the expiration of unused transactional
ids. Soft state is what a failover may forget: the epoch before the last InitProducerId (a retry of that call then fences its
producer, as with Kafka), and which markers are written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from ottla.broker.coordinator.outcome import CoordinatorRecord, Outcome, Unasked, unreadable
from ottla.broker.coordinator.partition_log import TopicPartition
from ottla.broker.coordinator.timers import Timers, sweep
from ottla.broker.transactions.transaction import IDLE, PREPARED, Transaction, TransactionState, from_record
from ottla.broker.transactions.transaction_stories import TransactionStories
from ottla.protocol.internal_topics.coordinator_records import TransactionLogKey, TransactionLogValue
from ottla.protocol.slotted import frozen
from ottla.server.client_bounds import TRANSACTIONAL_IDS, Bound
from ottla.server.config.settings import setting

log = logging.getLogger(__name__)

# The timeout of a two-phase commit: none (KIP-939).
NO_TIMEOUT_MS = 2**31 - 1
# The keys of timers, and of the sweeps that they begin.
ABORT_TIMED_OUT_KEY, ABORT_SWEEP_KEY = "abort-timed-out", "abort-timed-out-ids"
REMOVE_EXPIRED_KEY, EXPIRATION_SWEEP_KEY = "remove-expired", "remove-expired-ids"
COMPLETE_KEY = "complete-prepared"
# The cost of ending a transaction, which appends a record or sends markers, in looks at one that stays.
END_LOOKS = 100


@frozen
class TransactionConfig:
    """The broker configs that the transaction coordinator reads."""

    transactional_id_expiration_ms: int = setting("transactional.id.expiration.ms")
    transaction_max_timeout_ms: int = setting("transaction.max.timeout.ms")
    abort_timed_out_interval_ms: int = setting("transaction.abort.timed.out.transaction.cleanup.interval.ms")
    remove_expired_interval_ms: int = setting("transaction.remove.expired.transaction.cleanup.interval.ms")
    two_phase_commit_enable: bool = setting("transaction.two.phase.commit.enable")
    add_partitions_retry_backoff_ms: int = setting("add.partitions.to.txn.retry.backoff.ms")
    add_partitions_retry_backoff_max_ms: int = setting("add.partitions.to.txn.retry.backoff.max.ms")
    request_timeout_ms: int = setting("request.timeout.ms")
    # The limit of transactional ids per partition, which Kafka does not have.
    transactional_ids: Bound = setting(TRANSACTIONAL_IDS, partial(Bound, TRANSACTIONAL_IDS))


class ProducerIdNeeded(Exception):
    """The decision needs a producer id that was not allocated yet: decide again with one."""


class Coordinating(Protocol):
    """The interface of a shard to the rest of the coordinator."""

    @property
    def stories(self) -> TransactionStories: ...

    def transaction_version(self) -> int:
        """Return the finalized level of the feature."""
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
        # For each transactional id: producer id, epoch, and the epoch before. An entry is void when the producer id or the epoch has
        # changed again.
        self.last_epochs: dict[str, tuple[int, int, int]] = {}
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
        """Return the transaction. Raises KafkaError while its record could not be replayed.

        Its producer id and epoch, which fence others, are unknown then. A new producer id would fence rightly, but a commit
        that was acknowledged may wait for its markers, and a newer version can read the record. `ottla txn forget` is the
        remedy of an operator who knows that none will.
        """
        if transactional_id in self.unreadable:
            raise unreadable(f"transactional id {transactional_id}")
        return self.transactions.get(transactional_id)

    def replay_end_transaction_marker(self, producer_id: int, committed: bool) -> None:
        """Do nothing: no transaction writes to this topic."""

    # ---- soft state

    def last_epoch(self, transaction: Transaction) -> int:
        """Return the epoch before the current one, if it was raised for the same producer, and here; -1 otherwise."""
        known = self.last_epochs.get(transaction.transactional_id)
        if known is None or known[:2] != (transaction.producer_id, transaction.producer_epoch):
            return -1
        return known[2]

    def remember_epoch(self, transactional_id: str, producer_id: int, epoch: int, last_epoch: int) -> None:
        self.last_epochs[transactional_id] = producer_id, epoch, last_epoch

    # ---- timers

    def on_loaded(self, now_ms: int) -> Unasked:
        """Complete the prepared transactions, once it is certain that the preparation is committed."""
        self._schedule_abort()
        self._schedule_expiration()
        prepared = [transaction for transaction in self.transactions.values() if transaction.state in PREPARED]
        if not prepared:
            return Outcome()

        def look(transaction: Transaction, records: list[CoordinatorRecord]) -> int:
            # In the sweep's later turns the transaction may have become another one.
            if self.transactions.get(transaction.transactional_id) == transaction:
                self.coordinating.complete(transaction)
            return END_LOOKS

        def complete_some() -> None:
            sweep(self.timers, COMPLETE_KEY, iter(prepared), look)

        return Outcome(committed=complete_some)

    def on_unloaded(self) -> Unasked:
        return Outcome()

    def _schedule_abort(self) -> None:
        self.timers.schedule(ABORT_TIMED_OUT_KEY, self.config.abort_timed_out_interval_ms, self._abort_timed_out)

    def _abort_timed_out(self) -> Unasked:
        self._schedule_abort()
        return self.abort_timed_out(self.wall_ms())

    def _schedule_expiration(self) -> None:
        self.timers.schedule(REMOVE_EXPIRED_KEY, self.config.remove_expired_interval_ms, self._remove_expired)

    def _remove_expired(self) -> Unasked:
        self._schedule_expiration()
        return self.remove_expired(self.wall_ms())

    def abort_timed_out(self, now_ms: int) -> Unasked:
        """Abort transactions that are open for longer than their producer asked for."""

        def look(transactional_id: str, records: list[CoordinatorRecord]) -> int:
            transaction = self.transactions.get(transactional_id)
            if (
                transaction is None
                or transaction.state is not TransactionState.ONGOING
                or transaction.timeout_ms == NO_TIMEOUT_MS
                or transaction.start_ms + transaction.timeout_ms >= now_ms
            ):
                return 1
            self.coordinating.abort(transaction)
            return END_LOOKS

        return sweep(self.timers, ABORT_SWEEP_KEY, iter(list(self.transactions)), look)

    def remove_expired(self, now_ms: int) -> Unasked:
        """Tombstones for ids without a transaction that were idle for transactional.id.expiration.ms."""
        before_ms = now_ms - self.config.transactional_id_expiration_ms

        def look(transactional_id: str, records: list[CoordinatorRecord]) -> int:
            transaction = self.transactions.get(transactional_id)
            if transaction is not None and transaction.state in IDLE and transaction.last_update_ms <= before_ms:
                log.debug("Removing transactionalId %s, which has expired", transactional_id)
                records.append((TransactionLogKey(transactional_id=transactional_id), None))
            return 1

        return sweep(self.timers, EXPIRATION_SWEEP_KEY, iter(list(self.transactions)), look)
