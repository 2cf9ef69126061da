"""The transactional ids of a broker are listed in turns of the event loop."""

from __future__ import annotations

from typing import Any

from ottla.broker.transactions.transaction import created
from ottla.protocol.messages.list_transactions import ListTransactionsRequest
from tests.broker.coordinator.working_clock import TURN_MAX_NS, WorkingClock, clock
from tests.broker.transactions.harness import TransactionCoordinatorHarness

__all__ = ["clock"]

IDS = 60_000


def test_many_transactional_ids_of_one_partition_are_listed_by_a_pattern(clock: WorkingClock) -> None:
    harness = TransactionCoordinatorHarness()
    harness.shard.transactions = {f"x-{i}": created(f"x-{i}", i, 60_000, 0) for i in range(IDS)}
    answers: list[Any] = []
    request = ListTransactionsRequest(transactional_id_pattern="x-.*")
    clock.run(lambda: harness.coordinator.list(request).when_done(answers.append))
    clock.advance(100)
    assert len(answers[0].transaction_states) == IDS
    assert clock.longest_ns < TURN_MAX_NS // 2
