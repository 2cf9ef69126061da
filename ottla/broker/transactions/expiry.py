"""Expiry of transactions that are open for too long, and of unused transactional ids."""

from __future__ import annotations

import logging

from ottla.broker.coordinator.outcome import CoordinatorRecord, Unasked
from ottla.broker.coordinator.timers import sweep
from ottla.broker.transactions.shard import TransactionShard
from ottla.broker.transactions.state import IDLE, State
from ottla.broker.transactions.transaction import Transaction
from ottla.protocol.internal_topics.transaction_records import TransactionLogKey

log = logging.getLogger(__name__)

# The timeout of a two-phase commit: none (KIP-939).
NO_TIMEOUT_MS = 2**31 - 1
SWEEP_KEY, ABORT_SWEEP_KEY = "remove-expired-ids", "abort-timed-out-ids"
# The cost of ending a transaction, which appends a record or sends markers, in looks at one that stays.
END_LOOKS = 100


def abort_timed_out(shard: TransactionShard, now_ms: int) -> Unasked:
    """Aborts transactions that are open for longer than their producer asked for."""

    def look(transactional_id: str, records: list[CoordinatorRecord]) -> int:
        transaction = shard.transactions.get(transactional_id)
        if transaction is None or not _is_timed_out(transaction, now_ms):
            return 1
        shard.coordinating.abort(transaction)
        return END_LOOKS

    return sweep(shard.timers, ABORT_SWEEP_KEY, iter(list(shard.transactions)), look)


def _is_timed_out(transaction: Transaction, now_ms: int) -> bool:
    return (
        transaction.state is State.ONGOING
        and transaction.timeout_ms != NO_TIMEOUT_MS
        and transaction.start_ms + transaction.timeout_ms < now_ms
    )


def remove_expired(shard: TransactionShard, now_ms: int) -> Unasked:
    """Tombstones for ids without a transaction that were idle for transactional.id.expiration.ms."""
    before_ms = now_ms - shard.config.transactional_id_expiration_ms

    def look(transactional_id: str, records: list[CoordinatorRecord]) -> int:
        transaction = shard.transactions.get(transactional_id)
        if transaction is not None and transaction.state in IDLE and transaction.last_update_ms <= before_ms:
            log.debug("Removing transactionalId %s, which has expired", transactional_id)
            records.append((TransactionLogKey(transactional_id=transactional_id), None))
        return 1

    return sweep(shard.timers, SWEEP_KEY, iter(list(shard.transactions)), look)
