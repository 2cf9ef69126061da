"""All connections share the budget of one turn of the loop: if requests of twenty are slow, they are served over several turns."""

from __future__ import annotations

import asyncio
import time

from ottla.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.server.network.context import RequestContext
from ottla.server.network.pauses import SLOW_NS, TURN_NS, RequestTurn
from ottla.server.network.route import Route
from tests.manual_clock import ManualClock
from tests.server.tiny_node import LIST_GROUPS, request, tiny_node

CLIENTS = 20
#: One request takes so much of a turn that the second one exceeds it.
ONE_NS = TURN_NS * 2 // 3


class Served:
    """A connection whose requests take a while."""

    def __init__(self, turn: RequestTurn, spent_ns: int) -> None:
        self.turn, self.spent_ns, self.served = turn, spent_ns, 0

    def next_turn(self) -> None:
        self.served += 1
        self.turn.spend(self.spent_ns)


def test_who_waits_is_served_in_order_as_far_as_the_budget_of_each_turn_goes() -> None:
    clock = ManualClock()
    turn = RequestTurn(clock)
    waiting = [Served(turn, ONE_NS) for _ in range(5)]
    turn.spend(2 * TURN_NS)
    for each in waiting:
        turn.wait(each.next_turn)
    done = []
    while due := clock.armed:
        clock.call(due[0])
        done.append([each.served for each in waiting])
    assert done == [[1, 1, 0, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1], [1, 1, 1, 1, 1]]
    assert turn.left_ns == TURN_NS


def test_a_connection_that_fails_in_its_turn_costs_no_other_its_own() -> None:
    clock = ManualClock()
    turn = RequestTurn(clock)
    good, bad = Served(turn, 0), Served(turn, 0)
    bad.turn = None
    for each in (bad, good):
        turn.wait(each.next_turn)
    clock.advance(0)
    assert good.served == 1


async def test_slow_requests_of_many_connections_at_once_leave_turns_to_others() -> None:
    turns = [0]
    served_in: list[int] = []

    def slow(_: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
        served_in.append(turns[0])
        end = time.monotonic_ns() + ONE_NS
        while time.monotonic_ns() < end:
            pass
        return ListGroupsResponse()

    def count() -> None:
        turns[0] += 1
        loop.call_soon(count)

    loop = asyncio.get_running_loop()
    async with tiny_node(Route(LIST_GROUPS, slow)) as node:
        clients = [await node.client() for _ in range(CLIENTS)]
        count()
        for client in clients:
            client.send(request(LIST_GROUPS, 4, ListGroupsRequest()))
        for client in clients:
            assert await client.correlation_ids(1) == [1]
    assert len(served_in) == CLIENTS
    assert max(served_in.count(number) for number in served_in) <= 2


async def test_quick_requests_are_not_counted() -> None:
    async with tiny_node(Route(LIST_GROUPS, lambda request, context: ListGroupsResponse())) as node:
        client = await node.client()
        turn = node.listener._dispatcher.turn
        client.send(request(LIST_GROUPS, 4, ListGroupsRequest()))
        assert await client.correlation_ids(1) == [1]
        assert turn.left_ns == TURN_NS or turn.left_ns <= TURN_NS - SLOW_NS, (
            "nothing, or a read that was slow after all"
        )
