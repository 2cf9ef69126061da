"""A shard at work, as the coordinator runtime uses it: what follows from loading, and the timers of time-outs and expiry."""

from __future__ import annotations

from ottla.broker.coordinator.outcome import CoordinatorRecord, Outcome, Unasked
from ottla.broker.coordinator.timers import sweep
from ottla.broker.transactions import expiry
from ottla.broker.transactions.shard import TransactionShard
from ottla.broker.transactions.state import PREPARED
from ottla.broker.transactions.transaction import Transaction

ABORT_TIMED_OUT_KEY = "abort-timed-out"
REMOVE_EXPIRED_KEY = "remove-expired"
COMPLETE_KEY = "complete-prepared"


class TransactionCoordinatorShard(TransactionShard):
    """A shard of transaction coordination with its timers."""

    def on_loaded(self, now_ms: int) -> Unasked:
        """Completes the prepared transactions, once it is certain that the preparation is committed."""
        self._schedule_abort()
        self._schedule_expiry()
        prepared = [transaction for transaction in self.transactions.values() if transaction.state in PREPARED]
        if not prepared:
            return Outcome()

        def look(transaction: Transaction, records: list[CoordinatorRecord]) -> int:
            # In the sweep's later turns the transaction may have become another one.
            if self.transactions.get(transaction.transactional_id) == transaction:
                self.coordinating.complete(transaction)
            return expiry.END_LOOKS

        def complete_some() -> None:
            sweep(self.timers, COMPLETE_KEY, iter(prepared), look)

        return Outcome(committed=complete_some)

    def on_unloaded(self) -> Unasked:
        return Outcome()

    def _schedule_abort(self) -> None:
        self.timers.schedule(ABORT_TIMED_OUT_KEY, self.config.abort_timed_out_interval_ms, self._abort_timed_out)

    def _abort_timed_out(self) -> Unasked:
        self._schedule_abort()
        return expiry.abort_timed_out(self, self.wall_ms())

    def _schedule_expiry(self) -> None:
        self.timers.schedule(REMOVE_EXPIRED_KEY, self.config.remove_expired_interval_ms, self._remove_expired)

    def _remove_expired(self) -> Unasked:
        self._schedule_expiry()
        return expiry.remove_expired(self, self.wall_ms())
