"""The way to the active controller, when it changes while a request is under way."""

from __future__ import annotations

import asyncio

from ottla.broker.cluster.controller_channel import ControllerAddress, ControllerChannel
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.server.world import RealWorld
from tests.server.tiny_node import tiny_node, until


async def test_a_request_to_a_silent_controller_goes_to_the_next_one_as_soon_as_that_is_known() -> None:
    real = RealWorld(asyncio.get_running_loop())
    async with tiny_node() as silent, tiny_node() as successor:
        leader = ControllerAddress(1, "127.0.0.1", silent.port)
        channel = ControllerChannel(real.world, 9, lambda: leader)
        request = HeartbeatRequest(group_id="g", member_id="wait", generation_id=0)
        answer = asyncio.ensure_future(channel.request(request, timeout_ms=30_000))
        await until(lambda: "wait" in silent.heartbeats.waiting)
        leader = ControllerAddress(2, "127.0.0.1", successor.port)
        channel.leader_changed(2, 2)
        await until(lambda: "wait" in successor.heartbeats.waiting)
        successor.heartbeats.waiting["wait"].complete(HeartbeatResponse(error_code=5))
        assert (await answer).error_code == 5
        channel.close()
    await real.close()
