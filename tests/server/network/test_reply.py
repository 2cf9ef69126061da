"""A response that comes later: its steps, several combined into one, and clients that do not wait for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.network.context import Reply, gather, then

BUSY = KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def received(reply: Reply[Any]) -> list[Any]:
    """Return the bytes that the connection gets."""
    given: list[Any] = []
    reply.attach(SimpleNamespace(completed=given.append))
    return given


def test_each_step_is_given_what_the_one_before_made_of_the_response() -> None:
    reply: Reply[int] = Reply()
    given = received(reply.then(lambda number: number + 1).then(str))
    reply.complete(1)
    assert given == ["2"]


def test_a_step_for_a_response_that_is_there_runs_at_once() -> None:
    reply: Reply[int] = Reply()
    reply.complete(1)
    assert then(reply, str) == "1"
    assert then(2, str) == "2"


def test_an_error_passes_the_steps_by_until_one_makes_a_response_of_it() -> None:
    reply: Reply[int] = Reply(on_error=lambda error: error.code)
    given = received(reply.then(lambda code: code + 1))
    reply.complete(BUSY)
    assert given == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS + 1]
    plain: Reply[int] = Reply()
    given = received(plain.then(lambda number: number + 1))
    plain.complete(BUSY)
    assert given == [BUSY]


def test_an_error_of_a_step_is_the_outcome() -> None:
    def refuse(number: int) -> int:
        raise BUSY

    reply: Reply[int] = Reply()
    given = received(reply.then(refuse).then(lambda number: number + 1))
    reply.complete(1)
    assert given == [BUSY]


def test_a_step_may_wait_for_another_reply() -> None:
    first: Reply[int] = Reply()
    second: Reply[int] = Reply()
    given = received(first.then(lambda number: second).then(str))
    first.complete(1)
    assert given == []
    second.complete(2)
    assert given == ["2"]


def test_the_error_of_a_reply_that_is_there_is_raised_where_its_response_is_wanted() -> None:
    reply: Reply[int] = Reply()
    reply.complete(BUSY)
    with pytest.raises(KafkaError):
        then(reply, str)


def test_a_client_that_goes_cancels_what_the_last_step_waits_for() -> None:
    gone: list[str] = []
    first: Reply[int] = Reply()
    second: Reply[int] = Reply()
    second.on_cancel = lambda: gone.append("second")
    whole = first.then(lambda number: second)
    first.complete(1)
    whole.cancel()
    assert gone == ["second"]


def test_a_step_runs_for_a_client_that_has_gone_but_what_it_waits_for_is_cancelled() -> None:
    second: Reply[int] = Reply()
    first: Reply[int] = Reply()
    first.then(lambda number: second).cancel()
    first.complete(1)
    assert second.cancelled


@pytest.mark.parametrize("last", [0, 1])
def test_several_replies_are_one_when_the_last_of_them_has_come(last: int) -> None:
    replies: list[Reply[int]] = [Reply(), Reply()]
    whole = gather([7, *replies], sum)
    assert isinstance(whole, Reply)
    given = received(whole)
    replies[1 - last].complete(1)
    assert given == []
    replies[last].complete(2)
    assert given == [10]


def test_one_error_of_several_replies_is_the_error_of_all() -> None:
    replies: list[Reply[int]] = [Reply(), Reply()]
    whole = gather(replies, sum)
    assert isinstance(whole, Reply)
    given = received(whole)
    replies[0].complete(BUSY)
    replies[1].complete(2)
    assert given == [BUSY]


def test_responses_that_are_all_there_are_combined_at_once() -> None:
    there: Reply[int] = Reply()
    there.complete(1)
    assert gather([there, 2], sum) == 3


def test_a_client_that_goes_cancels_all_of_several() -> None:
    replies: list[Reply[int]] = [Reply(), Reply()]
    whole = gather(replies, sum)
    assert isinstance(whole, Reply)
    whole.cancel()
    assert all(reply.cancelled for reply in replies)


def test_a_request_is_answered_once() -> None:
    reply: Reply[int] = Reply()
    reply.complete(1)
    with pytest.raises(AssertionError):
        reply.complete(2)
