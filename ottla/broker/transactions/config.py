"""The broker configs that the transaction coordinator reads, with Kafka's defaults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ottla.server.quotas.bounds import TRANSACTIONAL_IDS, Bound


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    transactional_id_expiration_ms: int = 604_800_000
    transaction_max_timeout_ms: int = 900_000
    abort_timed_out_interval_ms: int = 10_000
    remove_expired_interval_ms: int = 3_600_000
    two_phase_commit_enable: bool = False
    add_partitions_retry_backoff_ms: int = 20
    add_partitions_retry_backoff_max_ms: int = 100
    request_timeout_ms: int = 30_000
    # The limit of transactional ids per partition, which Kafka does not have.
    transactional_ids: Bound = field(default_factory=lambda: Bound(TRANSACTIONAL_IDS, 100_000))


# Field -> Kafka's name.
PROPERTIES = {
    "transactional_id_expiration_ms": "transactional.id.expiration.ms",
    "transaction_max_timeout_ms": "transaction.max.timeout.ms",
    "abort_timed_out_interval_ms": "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    "remove_expired_interval_ms": "transaction.remove.expired.transaction.cleanup.interval.ms",
    "two_phase_commit_enable": "transaction.two.phase.commit.enable",
    "add_partitions_retry_backoff_ms": "add.partitions.to.txn.retry.backoff.ms",
    "add_partitions_retry_backoff_max_ms": "add.partitions.to.txn.retry.backoff.max.ms",
    "request_timeout_ms": "request.timeout.ms",
}


def from_properties(value_of: Callable[[str], Any]) -> TransactionConfig:
    """Reads the settings from parsed broker properties."""
    values = {field: value_of(name) for field, name in PROPERTIES.items()}
    return TransactionConfig(**values, transactional_ids=Bound(TRANSACTIONAL_IDS, value_of(TRANSACTIONAL_IDS)))
