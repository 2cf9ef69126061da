"""The state that a log of `__transaction_state` describes, made without a coordinator."""

from __future__ import annotations

from typing import Any

from ottla.broker.coordinator.timers import Timers
from ottla.broker.transactions.transaction import Transaction
from ottla.broker.transactions.transaction_shard import TransactionConfig, TransactionShard
from tests.broker.transactions.harness import TransactionCoordinatorHarness


def replayed(harness: TransactionCoordinatorHarness, records: list[tuple[int, Any, Any]]) -> dict[str, Transaction]:
    shard = TransactionShard(Timers(lambda: 0, lambda ms: None), TransactionConfig(), lambda: 0, harness.coordinator)
    for offset, key, value in records:
        shard.replay(offset, -1, key, value)
    return shard.transactions


def compacted(records: list[tuple[int, Any, Any]]) -> list[tuple[int, Any, Any]]:
    """Return the last record of every key, without tombstones."""
    last = {repr(key): offset for offset, key, _ in records}
    return [record for record in records if last[repr(record[1])] == record[0] and record[2] is not None]
