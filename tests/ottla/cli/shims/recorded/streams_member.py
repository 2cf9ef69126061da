"""A member of a streams group in a session: it sends the requests of a Kafka Streams application, without its JVM.

$ streams-join GROUP TOPIC     joins with a topology that reads the topic, waits for its tasks, and commits offset 2
$ streams-leave GROUP          leaves
"""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

from ottla.client.cluster import ClusterClient
from ottla.client.connection import open_cluster
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.shared_structs import Subtopology, TopicInfo
from ottla.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Topology,
)

MEMBER = str(UUID(int=7))
WAIT_MS = 30_000
LEAVING = -1


def run(server: str, command: str, arguments: list[str]) -> None:
    asyncio.run(_join(server, *arguments) if command == "streams-join" else _leave(server, *arguments))


async def _heartbeat(cluster: ClusterClient, group: str, epoch: int, **fields: Any) -> StreamsGroupHeartbeatResponse:
    async def ask() -> tuple[StreamsGroupHeartbeatResponse, int]:
        request = StreamsGroupHeartbeatRequest(group_id=group, member_id=MEMBER, member_epoch=epoch, **fields)
        response = await cluster.request(request, await cluster.coordinator(group), version=0)
        return response, response.error_code

    response, code = await cluster.retry(ask)
    assert not code, (code, response.error_message)
    return response


async def _join(server: str, group: str, topic: str) -> None:
    store = TopicInfo(name=f"{group}-store-changelog", replication_factor=1)
    topology = Topology(0, [Subtopology("0", [topic], state_changelog_topics=[store])])
    nothing: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    async with open_cluster(server, {}, None, WAIT_MS, limited=True) as cluster:
        response = await _heartbeat(
            cluster, group, 0, rebalance_timeout_ms=60_000, topology=topology, process_id="process", client_tags=[],
            **nothing,
        )  # fmt: skip
        owned = nothing
        while not response.active_tasks:
            await asyncio.sleep(0.2)
            response = await _heartbeat(cluster, group, response.member_epoch)
        owned = {"active_tasks": response.active_tasks, "standby_tasks": [], "warmup_tasks": []}
        epoch = (await _heartbeat(cluster, group, response.member_epoch, **owned)).member_epoch
        committed = OffsetCommitRequestPartition(partition_index=0, committed_offset=2)
        commit = OffsetCommitRequest(
            group, epoch, MEMBER, topics=[OffsetCommitRequestTopic(topic, partitions=[committed])]
        )
        done = await cluster.request(commit, await cluster.coordinator(group), version=9)
        assert not done.topics[0].partitions[0].error_code, done


async def _leave(server: str, group: str) -> None:
    async with open_cluster(server, {}, None, WAIT_MS, limited=True) as cluster:
        await _heartbeat(cluster, group, LEAVING)
