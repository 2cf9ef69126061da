"""The cost of consumer groups of the new protocol (KIP-848) for one node: `python -m benchmarks.groups [--members 2000]
[--groups 100]`.

    heartbeats   CPU of the node while so many members of so many groups send heartbeats at the default interval, and without them
    one group    500 members join over 1,000 partitions at once: until the group is Stable, after the last of them was answered
    assignment   the target of 5,000 partitions for 500 members, with its records: what the event loop stands still for

Each member has a connection of its own, and sends as the Java client does: an interval after its last heartbeat was sent, or at
once when its partitions have changed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import resource
import statistics
import struct
import time
from typing import Any
from unittest.mock import Mock

from benchmarks.usage import cpu_seconds
from benchmarks.watched import Node
from ottla.broker.groups.consumer.consumer_group import RECORDS, ConsumerGroup
from ottla.broker.groups.consumer.targets import plan
from ottla.broker.groups.heartbeats import target_records
from ottla.controller.metadata.shared_map import Map
from ottla.controller.metadata.topics import PartitionRegistration, TopicImage, TopicsImage
from ottla.protocol.api import APIS, ApiKey
from ottla.protocol.compile import decoder, encode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.group_records import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
)
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.shared_structs import TopicIdPartitions

HEARTBEAT, DESCRIBE, VERSION = ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE, 1
WAIT_SECONDS_MAX = 180
#: Errors while the groups' topic is created and loaded.
NOT_YET = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
#: Limits the connections that are opened at the same time.
OPENING = asyncio.Semaphore(100)


class Connection:
    async def open(self, port: int) -> None:
        async with OPENING:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port)

    async def request(self, api: ApiKey, message: object, version: int = VERSION) -> Any:
        """Return the response to a request of a version with flexible headers."""
        body = struct.pack(">hhih", api, version, 1, 5) + b"bench\0" + encode(message, version)
        self.writer.write(struct.pack(">i", len(body)) + body)
        size = struct.unpack(">i", await self.reader.readexactly(4))[0]
        data = bytearray(await self.reader.readexactly(size))
        return decoder(APIS[api].response, version)(data, 5, size)[0]


class Member(Connection):
    def __init__(self, group_id: str, member_id: str, topic: str) -> None:
        self.group_id, self.member_id, self.topic = group_id, member_id, topic
        self.epoch = 0
        self.owned: list[TopicIdPartitions] = []
        self.joined_at = 0.0
        self.heartbeats = 0

    async def run(self, port: int) -> None:
        """Join, and send heartbeats until the task is cancelled."""
        await self.open(port)
        has_changed = True
        while True:
            request = ConsumerGroupHeartbeatRequest(self.group_id, self.member_id, self.epoch)
            if self.epoch == 0:
                request.rebalance_timeout_ms, request.subscribed_topic_names = 300_000, [self.topic]
            request.topic_partitions = self.owned if has_changed else None
            sent_at = time.perf_counter()
            answer = await self.request(HEARTBEAT, request)
            if answer.error_code in NOT_YET:
                await asyncio.sleep(0.2)
                continue
            assert not answer.error_code, answer
            self.heartbeats += 1
            self.epoch = answer.member_epoch
            self.joined_at = self.joined_at or time.perf_counter()
            has_changed = answer.assignment is not None
            if has_changed:
                self.owned = [TopicIdPartitions(t.topic_id, t.partitions) for t in answer.assignment.topic_partitions]
            else:
                await asyncio.sleep(sent_at + answer.heartbeat_interval_ms / 1000 - time.perf_counter())


async def are_stable(port: int, group_ids: list[str], members: int) -> None:
    """Wait until all groups are Stable with `members` members each."""
    asking = Connection()
    await asking.open(port)
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while time.monotonic() < deadline:
        groups = (await asking.request(DESCRIBE, ConsumerGroupDescribeRequest(group_ids))).groups
        if all(group.group_state == "Stable" and len(group.members) == members for group in groups):
            return
        await asyncio.sleep(0.2)
    raise TimeoutError("the groups are not stable")


async def joined(port: int, members: list[Member]) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(member.run(port)) for member in members]
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not all(member.joined_at for member in members):
        for task in tasks:
            if task.done():
                task.result()
        assert time.monotonic() < deadline, "not all members were answered"
        await asyncio.sleep(0.05)
    return tasks


async def ended(tasks: list[asyncio.Task[None]], members: list[Member]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError):
            await task
    for member in members:
        member.writer.close()


async def heartbeats(node: Node, members: int, groups: int, seconds: int) -> None:
    pid, port = node.cluster.pid(1), node.port()
    before = cpu_seconds([pid])
    await asyncio.sleep(seconds)
    idle = (cpu_seconds([pid]) - before) / seconds
    group_ids = [f"many-{n}" for n in range(groups)]
    them = [Member(group_ids[n % groups], f"m-{n}", "many") for n in range(members)]
    tasks = await joined(port, them)
    await are_stable(port, group_ids, members // groups)
    sent, before = sum(member.heartbeats for member in them), cpu_seconds([pid])
    await asyncio.sleep(seconds)
    used = (cpu_seconds([pid]) - before) / seconds
    rate = (sum(member.heartbeats for member in them) - sent) / seconds
    await ended(tasks, them)
    print(
        f"| {members:,} members in {groups} groups, {rate:.0f} heartbeats/s | {used - idle:.1%} of a core,"
        f" beside {idle:.1%} of an idle node | goal 10% |"
    )


async def one_group(node: Node, members: int, partitions: int) -> None:
    them = [Member("one", f"m-{n}", "one") for n in range(members)]
    begin = time.perf_counter()
    tasks = await joined(node.port(), them)
    last = max(member.joined_at for member in them)
    await are_stable(node.port(), ["one"], members)
    stable = time.perf_counter()
    lag_ms = node.lag_ms()
    await ended(tasks, them)
    print(
        f"| {members} members over {partitions:,} partitions | Stable {stable - last:.1f} s after the last join,"
        f" {stable - begin:.1f} s after the first; longest turn of the loop {lag_ms:.0f} ms | goal 10 s |"
    )


def assignment(members: int, partitions: int) -> None:
    topic = TopicImage("t", bytes(16), Map({n: PartitionRegistration((1,), (1,)) for n in range(partitions)}))
    topics = TopicsImage(Map({topic.id: topic}), Map({topic.name: topic.id}))
    for assignor in ("uniform", "range"):
        shard = Mock(cluster=Mock(topics=lambda: topics), config=Mock(consumer_group_assignors=[assignor]))
        group = ConsumerGroup("g")
        taken_ms = []
        for round_ in range(5):
            # each round has one more member, so that partitions move
            for n in range(members + round_):
                value = ConsumerGroupMemberMetadataValue(
                    subscribed_topic_names=["t"], server_assignor=assignor, classic_member_metadata=None
                )
                group.replay(ConsumerGroupMemberMetadataKey("g", f"m-{n}"), value)
            group.epoch += 1
            begin = time.perf_counter()
            records = target_records(group.group_id, group.epoch, group.targets.copy(), RECORDS, plan(shard, group), 0)
            taken_ms.append((time.perf_counter() - begin) * 1000)
            for key, new in records:
                group.replay(key, new)
        print(
            f"| {assignor}: {partitions:,} partitions for {members} members | {statistics.median(taken_ms):.1f} ms,"
            f" at most {max(taken_ms):.1f} ms | goal 50 ms |"
        )


async def measure(args: argparse.Namespace) -> None:
    node = Node(1, **{"max.connections": str(args.members + 1000)})
    try:
        node.create("many", 20)
        node.create("one", 1_000)
        # The search for a coordinator makes the cluster create the groups' topic.
        node.admin.describe_consumer_groups(["one"])
        await heartbeats(node, args.members, args.groups, args.seconds)
        await one_group(node, 500, 1_000)
    finally:
        node.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.groups", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--members", type=int, default=2000)
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--seconds", type=int, default=30)
    args = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, args.members + 1000)), hard))
    assignment(500, 5_000)
    asyncio.run(measure(args))


if __name__ == "__main__":
    main()
