"""Pauses of a connection: requests take effect in order, whatever pauses each of their handlers makes (invariant 53)."""

from __future__ import annotations

import asyncio
from typing import Any, Literal, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.server.network.context import Answer, Reply, RequestContext
from ottla.server.network.pauses import Pause
from ottla.server.network.route import Route
from tests.effort import examples
from tests.server.tiny_node import LIST_GROUPS, heartbeat, request, tiny_node


class Plan(NamedTuple):
    """A plan for serving a request: the number of turns of the loop that each of its pauses lasts.

    Without pauses it is answered at once.
    """

    turns: list[int]
    #: The pauses of a batch that is prepared again are nested; those of a ShareFetch's searches overlap.
    begin: Literal["nested", "together"]


class Worked:
    """A handler of long work. The number of each request is its client id, and it takes effect when its last pause ends."""

    def __init__(self, plans: list[Plan]) -> None:
        self.effects: list[int] = []
        self._plans = plans
        self._tasks: list[asyncio.Task[None]] = []

    def __call__(self, request: ListGroupsRequest, context: RequestContext) -> Answer[ListGroupsResponse]:
        number = int(context.client_id or "")
        turns, begin = self._plans[number]
        if not turns:
            self.effects.append(number)
            return ListGroupsResponse()
        reply: Reply[ListGroupsResponse] = Reply()
        work = self._nested if begin == "nested" else self._together
        pauses = [context.connection.pause() for _ in turns[: 1 if begin == "nested" else None]]
        self._tasks.append(asyncio.create_task(work(number, context.connection, turns, pauses, reply)))
        return reply

    async def _nested(self, number: int, connection: Any, turns: list[int], pauses: list[Any], reply: Any) -> None:
        [pause] = pauses
        for left, count in zip(range(len(turns) - 1, -1, -1), turns, strict=True):
            await self._turns(count)
            following = connection.pause() if left else None
            if not left:
                self._take_effect(number, reply)
            pause.end()
            pause = following

    async def _together(self, number: int, connection: Any, turns: list[int], pauses: list[Any], reply: Any) -> None:
        left = len(pauses)

        async def one(pause: Pause, count: int) -> None:
            nonlocal left
            await self._turns(count)
            left -= 1
            if not left:
                self._take_effect(number, reply)
            pause.end()

        await asyncio.gather(*map(one, pauses, turns))

    def _take_effect(self, number: int, reply: Any) -> None:
        self.effects.append(number)
        reply.complete(ListGroupsResponse())

    async def _turns(self, count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)


plans = st.lists(
    st.builds(Plan, st.lists(st.integers(0, 3), max_size=3), st.sampled_from(["nested", "together"])),
    min_size=2,
    max_size=6,
)


@settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
@given(plans)
def test_requests_take_effect_in_order_whatever_pauses_each_has(plans: list[Plan]) -> None:
    async def served() -> list[int]:
        worked = Worked(plans)
        async with tiny_node(Route(LIST_GROUPS, worked)) as node:
            client = await node.client()
            client.send(
                b"".join(
                    request(LIST_GROUPS, 0, ListGroupsRequest(), number, client_id=str(number))
                    for number in range(len(plans))
                )
            )
            assert await client.correlation_ids(len(plans)) == list(range(len(plans)))
            client.close()
        return worked.effects

    assert asyncio.run(served()) == list(range(len(plans)))


async def test_a_pause_ends_once() -> None:
    async with tiny_node() as node:
        client = await node.client()
        client.send(heartbeat("m", 1))
        assert await client.correlation_ids(1) == [1]
        [connection] = node.listener.connections
        pause, other = connection.pause(), connection.pause()
        pause.end()
        with pytest.raises(AssertionError, match="a pause ends once"):
            pause.end()
        client.send(heartbeat("m", 2))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.reader.readexactly(1), 0.05)
        other.end()
        assert await client.correlation_ids(1) == [2]
