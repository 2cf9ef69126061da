"""Values are sent to the controller until it answers: one request at a time, with all values that wait. Values without an
answer are sent again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

import pytest

from ottla.broker.cluster.channels import ControllerAddress, ControllerChannel
from ottla.broker.replication.to_controller import PARTITIONS_A_REQUEST, UntilAnswered
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.server.world import RealWorld, World
from tests.server.tiny_node import tiny_node, until

RETRY_MS = 20


class Answers:
    """The keys of each request. Each request is answered when the test says which of them are to be sent again."""

    def __init__(self) -> None:
        self.asked: list[dict[str, int]] = []
        self.pending: asyncio.Future[Iterable[str]] | None = None

    async def ask(self, asked: dict[str, int]) -> Iterable[str]:
        assert self.pending is None, "one at a time"
        self.asked.append(asked)
        self.pending = asyncio.get_running_loop().create_future()
        try:
            return await self.pending
        finally:
            self.pending = None

    async def answer(self, *again: str) -> None:
        await until(lambda: self.pending is not None)
        assert self.pending is not None
        self.pending.set_result(again)
        await until(lambda: self.pending is None or not self.pending.done())


@pytest.fixture
async def world() -> AsyncIterator[World]:
    real = RealWorld(asyncio.get_running_loop())
    yield real.world
    await real.close()


@pytest.fixture
def answers() -> Answers:
    return Answers()


def batcher_of(world: World, answers: Answers, asked_max: int = PARTITIONS_A_REQUEST) -> UntilAnswered[str, int]:
    unreachable = ControllerChannel(world, 9, lambda: None)
    return UntilAnswered(world, unreachable, "Anything", answers.ask, retry_ms=RETRY_MS, asked_max=asked_max)


def is_running() -> bool:
    return any(task.get_name() == "Anything" for task in asyncio.all_tasks())


async def test_values_enqueued_while_a_request_is_in_flight_go_together_with_the_next(
    world: World, answers: Answers
) -> None:
    unanswered = batcher_of(world, answers)
    unanswered.enqueue("a", 1)
    await until(lambda: answers.asked)
    unanswered.enqueue("b", 2)
    unanswered.enqueue("c", 3)
    await answers.answer()
    await answers.answer()
    assert answers.asked == [{"a": 1}, {"b": 2, "c": 3}]
    unanswered.enqueue("a", 4)
    await answers.answer()
    assert answers.asked[2:] == [{"a": 4}]


async def test_what_was_asked_when_its_answer_could_not_be_handled_is_asked_again(
    world: World, answers: Answers
) -> None:
    unanswered = batcher_of(world, answers)
    unanswered.enqueue("a", 1)
    await until(lambda: answers.pending is not None)
    assert answers.pending is not None
    answers.pending.set_exception(ZeroDivisionError())
    await until(lambda: len(answers.asked) == 2)
    assert answers.asked == [{"a": 1}] * 2
    await answers.answer()
    await until(lambda: not is_running())


async def test_what_was_not_answered_is_asked_again_after_a_pause(world: World, answers: Answers) -> None:
    unanswered = batcher_of(world, answers)
    unanswered.enqueue("a", 1)
    await until(lambda: answers.asked)
    unanswered.enqueue("b", 2)
    began_ms = world.clock.mono_ms()
    await answers.answer("a")
    await until(lambda: len(answers.asked) == 2)
    assert world.clock.mono_ms() - began_ms >= RETRY_MS - 2
    assert answers.asked[1] == {"a": 1, "b": 2}


async def test_a_newer_value_replaces_the_one_that_was_not_answered(world: World, answers: Answers) -> None:
    unanswered = batcher_of(world, answers)
    unanswered.enqueue("a", 1)
    await until(lambda: answers.asked)
    unanswered.enqueue("a", 2)
    await answers.answer("a")
    await answers.answer()
    assert answers.asked == [{"a": 1}, {"a": 2}]


async def test_more_than_fit_into_a_request_go_in_several_and_one_that_fails_holds_up_no_other(
    world: World, answers: Answers
) -> None:
    unanswered = batcher_of(world, answers, asked_max=2)
    for number, key in enumerate("abc"):
        unanswered.enqueue(key, number)
    await answers.answer("a", "b")
    await answers.answer()
    await answers.answer()
    assert answers.asked == [{"a": 0, "b": 1}, {"c": 2, "a": 0}, {"b": 1}]


async def test_a_request_has_no_more_than_the_controller_decides_about_in_one_turn(
    world: World, answers: Answers
) -> None:
    """The loss of one follower changes the ISR of thousands of partitions at once."""
    keys = [str(number) for number in range(PARTITIONS_A_REQUEST + 1)]
    unanswered = batcher_of(world, answers)
    for key in keys:
        unanswered.enqueue(key, 0)
    await answers.answer()
    await answers.answer()
    assert [list(asked) for asked in answers.asked] == [keys[:-1], keys[-1:]]


async def test_nothing_is_asked_once_it_is_closed(world: World, answers: Answers) -> None:
    unanswered = batcher_of(world, answers)
    unanswered.enqueue("a", 1)
    await until(lambda: answers.asked)
    unanswered.enqueue("b", 2)
    unanswered.close()
    await answers.answer("a")
    await until(lambda: not is_running())
    unanswered.enqueue("c", 3)
    assert not is_running()
    assert answers.asked == [{"a": 1}]


@pytest.mark.parametrize(("error_code", "is_answer"), [(0, True), (77, False)])
async def test_an_answer_that_is_an_error_as_a_whole_is_none(
    world: World, answers: Answers, error_code: int, is_answer: bool
) -> None:
    async with tiny_node() as node:
        channel = ControllerChannel(world, 9, lambda: ControllerAddress(1, "127.0.0.1", node.port))
        unanswered: UntilAnswered[str, int] = UntilAnswered(world, channel, "Heartbeat", answers.ask, retry_ms=RETRY_MS)
        asked = asyncio.ensure_future(
            unanswered.answer(HeartbeatRequest(group_id="g", member_id="wait", generation_id=0))
        )
        await until(lambda: "wait" in node.heartbeats.waiting)
        node.heartbeats.waiting["wait"].complete(HeartbeatResponse(error_code=error_code))
        assert (await asked is not None) == is_answer
        channel.close()
        assert await unanswered.answer(HeartbeatRequest(group_id="g", member_id="m", generation_id=0)) is None
