"""Consumer groups at a simulated node: actions that are seconds apart, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.sim.loop import run
from tests.sim.test_refusals import TOPIC, Cluster

GROUP = "shop"
SECONDS_MAX = 30


async def eventually(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    deadline = asyncio.get_running_loop().time() + SECONDS_MAX
    while not await condition():
        assert asyncio.get_running_loop().time() < deadline, what
        await asyncio.sleep(0.1)


def test_a_regular_expression_is_resolved_and_again_when_a_topic_is_created() -> None:
    async def main() -> None:
        alone = dict.fromkeys(
            ("default.replication.factor", "min.insync.replicas", "offsets.topic.replication.factor"), "1"
        )
        cluster = Cluster({1: "broker,controller"}, alone)
        await cluster.begin(1)

        async def heartbeat(epoch: int, expression: str | None = None) -> Any:
            fields: dict[str, Any] = {}
            if epoch == 0:
                fields = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [], "topic_partitions": []}
            request = ConsumerGroupHeartbeatRequest(
                group_id=GROUP, member_id="m", member_epoch=epoch, subscribed_topic_regex=expression, **fields
            )
            return await cluster.ask(1, request)

        async def described() -> Any:
            return (await cluster.ask(1, ConsumerGroupDescribeRequest(group_ids=[GROUP]))).groups[0]

        async def goes_on() -> int:
            return int((await heartbeat((await described()).members[0].member_epoch)).member_epoch)

        async def topics() -> list[str]:
            return sorted(each.topic_name for each in (await described()).members[0].assignment.topic_partitions)

        async def is_coordinator() -> bool:
            find = FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])
            found = (await cluster.ask(1, find)).coordinators[0].error_code == ErrorCode.NONE
            return found and (await described()).error_code == ErrorCode.GROUP_ID_NOT_FOUND

        async def is_in_epoch(epoch: int) -> bool:
            return await goes_on() == epoch

        await eventually(is_coordinator, "the coordinator to be loaded")
        assert (await heartbeat(0, "(")).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
        assert (await heartbeat(0, f"(?i){TOPIC.upper()}|later.*")).member_epoch == 1
        await eventually(lambda: is_in_epoch(2), "its topics")
        assert await topics() == [TOPIC]
        assert await cluster.admin.spawn(cluster.admin.create("later-1", 1, {}, 1), "creates")
        # This is ten seconds after the last resolution at the earliest.
        await eventually(lambda: is_in_epoch(3), "the new topic")
        assert await topics() == ["later-1", TOPIC]

    run(main())
