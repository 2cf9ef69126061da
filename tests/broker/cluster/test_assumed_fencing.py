"""Brokers that lose the controller, the others, or both: simulated clusters of the real nodes, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from ottla.broker.cluster.assumed_fencing import Reachability, is_minority, reason
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.server.network.client import Channel
from ottla.server.network.wire import ChannelClosed
from tests.sim.cluster import BROKER_PORT, SimNode
from tests.sim.harness import APART, TOGETHER, SimClusterHarness
from tests.sim.loop import run

SESSION_SECONDS = 9.0


def is_assumed(node: SimNode) -> bool:
    assert node.server is not None and node.server.broker is not None
    return node.server.broker.assumed_fencing.is_assumed


def cut_off(harness: SimClusterHarness, *some: SimNode) -> None:
    """Cut these nodes off from the others. Their clients still reach them."""
    others = [node for node in harness.cluster.nodes if node not in some]
    harness.cluster.hub.partition([node.host.name for node in some], [node.host.name for node in others])


@pytest.mark.parametrize(
    ("reached", "silent", "expected"),
    [
        (0, 0, False),  # the only broker, or the last one after all others have ended
        (0, 1, True),
        (0, 2, True),
        (1, 1, False),
        (1, 2, True),  # two and two: neither half is a majority
        (2, 2, False),
        (1, 3, True),
    ],
)
def test_brokers_that_are_no_majority_of_those_that_may_run_are_a_minority(
    reached: int, silent: int, expected: bool
) -> None:
    assert is_minority(reached, silent) is expected


def test_a_leader_cut_off_from_the_others_disconnects_its_clients_when_its_session_is_over_and_serves_them_after_the_heal() -> (
    None
):
    """Otherwise its clients would go on using it: it names itself as the leader, and acknowledges nothing."""

    async def main() -> None:
        harness = SimClusterHarness(TOGETHER)
        await harness.begin()
        leader = harness.leader()
        channel = Channel(harness.admin.world, leader.host.name, BROKER_PORT, "client")
        await channel.request(MetadataRequest())
        cut_off(harness, leader)
        began = asyncio.get_running_loop().time()
        await harness.until("it assumes that it was fenced", lambda: is_assumed(leader))
        seconds = asyncio.get_running_loop().time() - began
        assert SESSION_SECONDS - 2 <= seconds <= SESSION_SECONDS + 3, (
            "a heartbeat's interval before, a look at the others after"
        )
        await harness.until("the client to be disconnected", lambda: not channel.is_open, 1)
        await channel.connect()  # a broker that only asks whether this one runs gets an answer
        with pytest.raises(ChannelClosed):
            await channel.request(MetadataRequest())
        assert not any(is_assumed(node) for node in harness.cluster.nodes if node is not leader)
        assert leader.server is not None
        failed = [check.why for check in leader.server.checks.ready() if not check.passed]
        assert any("assumes that it was fenced" in why for why in failed), failed
        harness.cluster.hub.heal()
        await harness.until("it serves again", lambda: not is_assumed(leader))
        assert len((await channel.request(MetadataRequest())).brokers) == 3
        channel.close()

    run(main())


def test_brokers_whose_whole_quorum_is_away_go_on_serving() -> None:
    """Apache Kafka's brokers do the same: they reach each other, so that none of them is the one that is cut off."""

    async def main() -> None:
        harness = SimClusterHarness(APART)
        await harness.begin()
        harness.cluster.hub.partition(
            [harness.cluster.by_number[4].host.name], [n.host.name for n in harness.cluster.brokers]
        )
        await asyncio.sleep(4 * SESSION_SECONDS)
        assert not any(is_assumed(node) for node in harness.cluster.brokers)

    run(main())


def test_brokers_that_are_too_busy_to_answer_once_are_not_taken_for_cut_off() -> None:
    """Every broker is out of touch while a controller is elected. If it closed all clients' connections then, it would break
    their requests to the new controller.
    """

    async def main() -> None:
        harness = SimClusterHarness(APART)
        await harness.begin()
        one, *others = harness.cluster.brokers
        harness.cluster.hub.partition(
            [harness.cluster.by_number[4].host.name], [n.host.name for n in harness.cluster.brokers]
        )
        await asyncio.sleep(SESSION_SECONDS)
        for _ in range(20):
            for node in others:
                node.host.pause()
            await asyncio.sleep(1.3)
            assert not is_assumed(one)
            for node in others:
                node.host.resume()
            await asyncio.sleep(1.9)  # the third look begins right after the next pause
            assert not is_assumed(one)

    run(main())


def test_a_leader_cut_off_from_the_controllers_alone_stops_serving_once_another_leads_in_its_place() -> None:
    """The broker reaches all other brokers, and they name its successor."""

    async def main() -> None:
        harness = SimClusterHarness(APART)
        await harness.begin()
        leader = harness.leader()
        harness.cluster.hub.partition([leader.host.name], [harness.cluster.by_number[4].host.name])
        began = asyncio.get_running_loop().time()
        await harness.until("it assumes that it was fenced", lambda: is_assumed(leader))
        assert asyncio.get_running_loop().time() - began <= SESSION_SECONDS + 3
        assert [node for node in harness.cluster.brokers if is_assumed(node)] == [leader]
        harness.cluster.hub.heal()
        await harness.until("it serves again", lambda: not is_assumed(leader))

    run(main())


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([Reachability.REACHED, Reachability.REACHED], None),
        ([Reachability.REACHED, Reachability.SUCCESSOR], "another broker leads in its place"),
        ([Reachability.SILENT, Reachability.SILENT], "it reaches no majority of the brokers"),
        ([Reachability.GONE, Reachability.GONE], None),
        ([], None),
    ],
)
def test_what_a_broker_that_is_out_of_touch_makes_of_the_others(
    found: list[Reachability], expected: str | None
) -> None:
    assert reason(found) == expected


def test_the_last_node_of_which_all_others_have_ended_goes_on_serving() -> None:
    async def main() -> None:
        harness = SimClusterHarness(TOGETHER)
        await harness.begin()
        last, *others = harness.cluster.nodes
        for node in others:
            await node.crash(power=False)
        await asyncio.sleep(4 * SESSION_SECONDS)
        assert not is_assumed(last)

    run(main())


def test_a_broker_that_was_paused_for_longer_than_its_session_does_not_assume_it_when_it_goes_on() -> None:
    async def main() -> None:
        harness = SimClusterHarness(TOGETHER)
        await harness.begin()
        paused = harness.leader()
        paused.host.pause()
        await asyncio.sleep(2 * SESSION_SECONDS)
        paused.host.resume()
        for _ in range(1_000):
            await asyncio.sleep(0.005)
            assert not is_assumed(paused)

    run(main())


def test_a_broker_that_begins_to_stop_while_it_looks_for_the_others_does_not_assume_it_any_more() -> None:
    """Before the fix the broker disconnected its clients in the middle of its own shutdown, and then let them in again."""

    async def main() -> None:
        harness = SimClusterHarness(TOGETHER)
        await harness.begin()
        leader = harness.leader()
        cut_off(harness, leader)
        assert leader.server is not None and leader.server.broker is not None
        fencing = leader.server.broker.assumed_fencing
        await harness.until("its session is over", lambda: fencing._session_left_ms() <= 0)
        stopping = asyncio.get_running_loop().create_task(leader.stop())
        while not stopping.done():
            await asyncio.sleep(0.005)
            assert not fencing.is_assumed

    run(main())
