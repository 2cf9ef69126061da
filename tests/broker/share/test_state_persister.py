"""The persister, in front of share coordinators on logs in memory: what is sent together, retried, and kept in order."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.share.share_state import SharePartitionKey, ShareState, StateBatch, StateUpdate
from ottla.broker.share.state_persister import CALLS_PER_TURN, StatePersister, always
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.network.context import Reply
from tests.broker.share.coordinator.harness import ORDERS, ShareCoordinatorHarness

KEY, OTHER = SharePartitionKey("g", ORDERS, 0), SharePartitionKey("g", ORDERS, 1)
MINUTE_MS = 60_000


class Brokers:
    """Brokers of which broker 1 coordinates all share partitions. `coordinator` is the one that the metadata names."""

    def __init__(self) -> None:
        self.share = ShareCoordinatorHarness()
        self.coordinator: int | None = 1
        self.is_reachable = True
        self.requests: list[Any] = []
        self.creations = 0
        self.persister = StatePersister(self.share.clock, lambda key: self.coordinator, self.send, self.create_topic)

    def create_topic(self) -> None:
        self.creations += 1

    def send(self, node_id: int, request: Any) -> Reply[Any]:
        self.requests.append(request)
        reply: Reply[Any] = Reply()
        if not self.is_reachable:
            reply.complete(KafkaError(ErrorCode.NETWORK_EXCEPTION))
            return reply
        reply.follow(self.share.coordinator.respond(request))
        return reply


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


def outcome_of(reply: Reply[Any]) -> list[Any]:
    """Return a list with the outcome, which is empty until the reply is completed."""
    outcomes: list[Any] = []
    reply.when_done(outcomes.append)
    return outcomes


def update(start_offset: int, *batches: StateBatch) -> StateUpdate:
    return StateUpdate(1, 0, start_offset, batches)


def test_calls_of_one_turn_are_one_request(brokers: Brokers) -> None:
    first = outcome_of(brokers.persister.initialize(KEY, 1, -1, always))
    second = outcome_of(brokers.persister.initialize(OTHER, 1, -1, always))
    assert not first
    brokers.share.clock.turn()
    assert first == second == [None]
    assert len(brokers.requests) == 1


def test_calls_of_a_group_with_many_share_partitions_are_sent_in_several_turns(brokers: Brokers) -> None:
    count = 2 * CALLS_PER_TURN + 1
    brokers.share.topics["orders"] = count
    outcomes = [
        outcome_of(brokers.persister.initialize(KEY._replace(partition=p), 1, -1, always)) for p in range(count)
    ]
    for _ in range(3):
        brokers.share.clock.turn()
    assert outcomes == [[None]] * count
    sizes = [len(request.topics[0].partitions) for request in brokers.requests]
    assert sizes == [CALLS_PER_TURN, CALLS_PER_TURN, 1], "all 5,000 of a topic held the loop for 194 ms of CPU"


def test_a_state_that_was_written_is_read(brokers: Brokers) -> None:
    brokers.persister.initialize(KEY, 1, -1, always)
    brokers.persister.write(KEY, update(5, StateBatch(6, 7, 2, 1)))
    state = outcome_of(brokers.persister.read(KEY, 0))
    brokers.share.clock.advance(MINUTE_MS)
    assert state == [ShareState(1, 5, [StateBatch(6, 7, 2, 1)])]


def test_what_the_coordinator_refuses_is_not_retried(brokers: Brokers) -> None:
    refused = outcome_of(brokers.persister.write(KEY, update(5)))
    brokers.share.clock.advance(MINUTE_MS)
    assert [error.code for error in refused] == [ErrorCode.INVALID_REQUEST]
    assert len(brokers.requests) == 1


@pytest.mark.parametrize("accident", ["moved", "lost", "no leader", "no topic"])
def test_a_call_is_retried_until_the_coordinator_answers(brokers: Brokers, accident: str) -> None:
    if accident == "moved":
        brokers.share.coordinator.unload(0)
    elif accident == "lost":
        brokers.is_reachable = False
    else:
        brokers.coordinator = -1 if accident == "no leader" else None
    done = outcome_of(brokers.persister.initialize(KEY, 1, -1, always))
    brokers.share.clock.advance(2_000)
    assert not done
    assert bool(brokers.creations) == (accident == "no topic")
    brokers.is_reachable, brokers.coordinator = True, 1
    brokers.share.elect()
    brokers.share.clock.advance(2_000)
    assert done == [None]


def test_a_call_fails_when_no_coordinator_is_found_for_half_a_minute(brokers: Brokers) -> None:
    brokers.coordinator = -1
    done = outcome_of(brokers.persister.initialize(KEY, 1, -1, always))
    brokers.share.clock.advance(30_000)
    assert not done
    brokers.share.clock.advance(MINUTE_MS)
    assert [error.code for error in done] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


def test_updates_are_applied_in_the_order_of_their_calls_though_the_first_is_retried(brokers: Brokers) -> None:
    brokers.persister.initialize(KEY, 1, -1, always)
    brokers.share.clock.turn()
    brokers.is_reachable = False
    done = [outcome_of(brokers.persister.write(KEY, update(5)))]
    brokers.share.clock.turn()
    brokers.is_reachable = True
    done.append(outcome_of(brokers.persister.write(KEY, update(6))))
    brokers.share.clock.turn()
    assert done == [[], []]
    brokers.share.clock.advance(1_000)
    assert done == [[None], [None]]
    assert brokers.share.summary().start_offset == 6


def test_updates_that_wait_behind_another_one_are_one_update(brokers: Brokers) -> None:
    brokers.persister.initialize(KEY, 1, -1, always)
    brokers.share.clock.turn()
    brokers.requests.clear()
    done = [outcome_of(brokers.persister.write(KEY, update(n, StateBatch(10 + n, 10 + n, 2, 1)))) for n in range(4)]
    brokers.share.clock.advance(1_000)
    assert done == [[None]] * 4
    assert len(brokers.requests) == 2
    assert [tuple(batch) for batch in brokers.share.shard.states[KEY].batches] == [(10, 13, 2, 1)]
    assert brokers.share.summary().start_offset == 3


@pytest.mark.parametrize("ask", ["initialize", "delete"])
def test_what_a_deposed_group_coordinator_has_asked_for_is_not_sent_again(brokers: Brokers, ask: str) -> None:
    is_coordinator = True

    def holds() -> bool:
        return is_coordinator

    brokers.is_reachable = False
    key = KEY._replace(group_id="other")
    asked = brokers.persister.delete(key, holds) if ask == "delete" else brokers.persister.initialize(key, 1, -1, holds)
    done, next_call = outcome_of(asked), outcome_of(brokers.persister.read_summary(key, 0))
    brokers.share.clock.turn()
    assert len(brokers.requests) == 1 and not done
    is_coordinator, brokers.is_reachable = False, True
    brokers.share.clock.advance(MINUTE_MS)
    assert [error.code for error in done] == [ErrorCode.NOT_COORDINATOR]
    assert len(brokers.requests) == 2 and len(next_call) == 1, "calls behind it are sent"
