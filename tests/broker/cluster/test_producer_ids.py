"""Producer ids come in blocks from the controller; requests for an id wait for the block."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.cluster.producer_ids import WAITERS_MAX, ProducerIds
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from ottla.server.world import World
from tests.manual_clock import ManualClock

BLOCK = 1_000


class ProducerIdsHarness:
    """A broker's producer ids, a controller that gives blocks of BLOCK ids, and requests that the test lets run."""

    def __init__(self) -> None:
        self.tasks: list[Coroutine[Any, Any, None]] = []
        self.error: ErrorCode | None = None
        self.blocks = 0
        world = World(ManualClock(), None, None, None, None, lambda task, name: self.tasks.append(task))
        self.producer_ids = ProducerIds(world, 1, self, SimpleNamespace(broker_epoch=7))
        self.answers: list[tuple[int, ErrorCode]] = []

    async def request(self, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
        assert (request.broker_id, request.broker_epoch) == (1, 7)
        if self.error is not None:
            raise KafkaError(self.error)
        self.blocks += 1
        return AllocateProducerIdsResponse(producer_id_start=(self.blocks - 1) * BLOCK, producer_id_len=BLOCK)

    def take(self, count: int = 1) -> None:
        for _ in range(count):
            self.producer_ids.take(lambda producer_id, error: self.answers.append((producer_id, error)))

    def controller_answers(self) -> None:
        tasks, self.tasks = self.tasks, []
        for task in tasks:
            asyncio.run(task)


@pytest.fixture
def harness() -> ProducerIdsHarness:
    return ProducerIdsHarness()


def test_no_id_is_given_twice_however_many_wait_for_the_block(harness: ProducerIdsHarness) -> None:
    harness.take(2 * BLOCK + 1)
    assert not harness.answers and len(harness.tasks) == 1, "one request for all who wait"
    while harness.tasks:
        harness.controller_answers()
    assert sorted(harness.answers) == [(each, ErrorCode.NONE) for each in range(2 * BLOCK + 1)]


def test_the_next_block_is_requested_before_the_last_id_is_gone(harness: ProducerIdsHarness) -> None:
    harness.take()
    harness.controller_answers()
    harness.take(BLOCK - 2)
    assert len(harness.tasks) == 1
    harness.controller_answers()
    harness.take(2)
    assert harness.answers[-1] == (BLOCK, ErrorCode.NONE)


def test_so_many_may_wait_and_one_more_is_sent_away_to_retry(harness: ProducerIdsHarness) -> None:
    harness.take(WAITERS_MAX)
    assert not harness.answers
    harness.take()
    assert harness.answers == [(-1, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
    while harness.tasks:
        harness.controller_answers()
    assert sorted(harness.answers)[1:] == [(each, ErrorCode.NONE) for each in range(WAITERS_MAX)]


def test_without_a_controller_all_who_wait_are_sent_away_to_retry(harness: ProducerIdsHarness) -> None:
    harness.error = ErrorCode.REQUEST_TIMED_OUT
    harness.take(3)
    harness.controller_answers()
    assert harness.answers == [(-1, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)] * 3
    harness.error = None
    harness.take()
    harness.controller_answers()
    assert harness.answers[-1] == (0, ErrorCode.NONE)
