"""The broker configs that the transaction coordinator reads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ottla.server.config.settings import setting
from ottla.server.quotas.bounds import TRANSACTIONAL_IDS, Bound


@dataclass(frozen=True, slots=True)
class TransactionConfig:
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
