"""Members of groups by the consumer protocol: what they send and take over, and two of them at a node."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.client.cluster import ClusterClient
from ottla.client.connection import open_cluster
from ottla.client.consumer_members import HeartbeatMember
from ottla.client.errors import ClusterError
from ottla.client.group_consumer import GroupConsumer
from ottla.client.group_offsets import NO_GENERATION
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from ottla.protocol.messages.shared_structs import TopicIdAssignment, TopicIdPartitions
from tests.ottla.conftest import Cli

T, GONE = b"t" * 16, b"g" * 16
TIMEOUT_MS = 30_000


def assigned(epoch: int, *rows: tuple[bytes, list[int]]) -> ConsumerGroupHeartbeatResponse:
    rows_ = [TopicIdPartitions(topic_id, partitions) for topic_id, partitions in rows]
    return ConsumerGroupHeartbeatResponse(
        member_epoch=epoch, heartbeat_interval_ms=5, assignment=TopicIdAssignment(rows_)
    )


class Coordinator:
    """A cluster whose coordinator gives these responses, and which knows the topic `t`."""

    def __init__(self, *responses: ConsumerGroupHeartbeatResponse) -> None:
        self.responses = list(responses)
        self.requests: list[ConsumerGroupHeartbeatRequest] = []
        self.world = SimpleNamespace(rng=random.Random(1))
        self.timeout_ms = 1_000

    async def coordinator(self, group: str) -> int:
        return 1

    async def metadata(self, topics: Any) -> MetadataResponse:
        return MetadataResponse(topics=[MetadataResponseTopic(name="t", topic_id=T)])

    async def request(self, request: Any, node: int, timeout_ms: int) -> ConsumerGroupHeartbeatResponse:
        self.requests.append(request)
        return self.responses.pop(0)


def play(
    coordinator: Coordinator, steps: Callable[[HeartbeatMember], Awaitable[None]], assignor: str | None = None
) -> None:
    asyncio.run(cast(Any, steps(HeartbeatMember(cast(ClusterClient, coordinator), "g", assignor))))


def test_a_member_joins_takes_what_it_is_given_and_says_once_what_it_has() -> None:
    nothing_new = ConsumerGroupHeartbeatResponse(member_epoch=3, heartbeat_interval_ms=7)
    coordinator = Coordinator(assigned(1, (T, [0, 2])), nothing_new, nothing_new, assigned(4, (T, [2])), nothing_new)

    async def steps(member: HeartbeatMember) -> None:
        assert await member.join(["t"]) == [("t", 0), ("t", 2)] and member.is_due
        assert await member.heartbeat() == (0, None, None) and not member.is_due
        assert (member.generation, member.interval_ms) == (3, 7)
        await member.heartbeat()
        assert (await member.heartbeat()).assigned == [("t", 2)] and member.is_due
        await member.leave("the end")

    play(coordinator, steps, "range")
    join, *others = coordinator.requests
    assert (join.member_epoch, join.subscribed_topic_names, join.server_assignor, join.topic_partitions) == (
        0, ["t"], "range", [],
    )  # fmt: skip
    assert [(each.member_epoch, each.topic_partitions) for each in others] == [
        (1, [TopicIdPartitions(T, [0, 2])]), (3, None), (3, None), (-1, None),
    ]  # fmt: skip
    assert len({each.member_id for each in coordinator.requests}) == 1


def test_a_topic_that_was_deleted_meanwhile_is_neither_read_nor_owned() -> None:
    coordinator = Coordinator(assigned(1, (GONE, [0]), (T, [1])), assigned(2))

    async def steps(member: HeartbeatMember) -> None:
        assert await member.join(["t"]) == [("t", 1)]
        await member.heartbeat()

    play(coordinator, steps)
    assert coordinator.requests[1].topic_partitions == [TopicIdPartitions(T, [1])]


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH])
def test_a_member_that_the_coordinator_has_forgotten_joins_again(code: ErrorCode) -> None:
    coordinator = Coordinator(assigned(1, (T, [0])), ConsumerGroupHeartbeatResponse(error_code=code))

    async def steps(member: HeartbeatMember) -> None:
        await member.join(["t"])
        assert member.is_out((await member.heartbeat()).code) and member.generation == NO_GENERATION
        assert not member.is_out(ErrorCode.GROUP_AUTHORIZATION_FAILED)

    play(coordinator, steps)


def test_a_member_that_is_refused_says_why() -> None:
    refused = ConsumerGroupHeartbeatResponse(
        error_code=ErrorCode.UNSUPPORTED_ASSIGNOR, error_message="ServerAssignor x is not supported."
    )

    async def steps(member: HeartbeatMember) -> None:
        with pytest.raises(ClusterError, match="ServerAssignor x is not supported"):
            await member.join(["t"])

    play(Coordinator(refused), steps, "x")


class Eager(HeartbeatMember):
    """Sends a heartbeat with each poll: a test does not wait five seconds for the next one."""

    @property
    def is_due(self) -> bool:
        return True


def test_two_members_share_a_topic_and_read_each_record_once(cli: Cli) -> None:
    topic = cli.topic(partitions=4)
    group = f"of-{topic}"
    values = [str(number) for number in range(40)]
    cli.ok("produce", topic, stdin="\n".join(values[:20]) + "\n")
    read: list[str] = []

    async def poll(*members: GroupConsumer) -> None:
        for polled in await asyncio.gather(*(member.poll() for member in members)):
            read.extend((record.value or b"").decode() for _, _, records, _ in polled for record in records)

    async def run() -> None:
        async with (
            open_cluster(cli.bootstrap, {}, None, TIMEOUT_MS, limited=False) as one,
            open_cluster(cli.bootstrap, {}, None, TIMEOUT_MS, limited=False) as two,
            GroupConsumer(one, group, [topic], member=Eager(one, group)) as a,
        ):
            while len(read) < 20:
                await poll(a)
            async with GroupConsumer(two, group, [topic], member=Eager(two, group)) as b:
                while [len(each.consumer.positions) for each in (a, b)] != [2, 2]:
                    await poll(a, b)
                assert not a.consumer.positions.keys() & b.consumer.positions.keys()
                await asyncio.to_thread(cli.ok, "produce", topic, stdin="\n".join(values[20:]) + "\n")
                while len(read) < 40:
                    await poll(a, b)
                await poll(a, b)
            while len(a.consumer.positions) < 4:
                await poll(a)

    asyncio.run(asyncio.wait_for(run(), 60))
    assert sorted(read) == sorted(values), "none is lost, and none is read again by another member"
    (row,) = [row for row in cli.rows("group", "list") if row["group"] == group]
    assert row["type"] == "consumer"
    assert {row["lag"] for row in cli.rows("group", "lag", group)} == {0}
