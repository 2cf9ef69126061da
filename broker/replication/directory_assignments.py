"""Telling the controller in which log directory a replica is, where it believes otherwise (KIP-858, AssignReplicasToDirs).

So it is after a disk was replaced, and where the controller left the choice among several directories to the broker. The
controller elects no replica whose directory is not among those that the broker registered, and takes away the leadership
of those in a directory that fails: both go by what is told here. What was not answered is told again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from broker.controller_channel import ControllerChannel
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryDataRequest,
    PartitionDataRequest,
    TopicDataRequest,
)
from server.world import World

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_MS = 10_000
#: AssignmentsManager.MAX_ASSIGNMENTS_PER_REQUEST
REPLICAS_PER_REQUEST_MAX = 2250
RETRY_MS = 500
#: The replica is gone or is not here any more: the metadata says so, or soon will.
OVERTAKEN = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER}
)

Replica = tuple[bytes, int]


class DirectoryAssignments:
    """The assignments of one node: one request at a time, with all that wait."""

    def __init__(
        self, world: World, node_id: int, controller: ControllerChannel, broker_epoch: Callable[[], int]
    ) -> None:
        self._world = world
        self._node_id = node_id
        self._controller = controller
        self._broker_epoch = broker_epoch
        self._waiting: dict[Replica, bytes] = {}
        self._running = self._closed = False

    def assign(self, topic_id: bytes, index: int, directory_id: bytes) -> None:
        self._waiting[topic_id, index] = directory_id
        if not self._running and not self._closed:
            self._running = True
            self._world.spawn(self._run(), "assign replicas to directories")

    def close(self) -> None:
        self._closed = True
        self._waiting.clear()

    async def _run(self) -> None:
        try:
            while self._waiting and not self._closed:
                asked = dict(list(self._waiting.items())[:REPLICAS_PER_REQUEST_MAX])
                for replica in await self._ask(asked):
                    if self._waiting.get(replica) == asked[replica]:
                        del self._waiting[replica]
                if self._waiting:
                    await self._pause()
        finally:
            self._running = False

    async def _ask(self, asked: Mapping[Replica, bytes]) -> list[Replica]:
        """Those that need not be told again."""
        try:
            response: AssignReplicasToDirsResponse = await self._controller.request(
                self._request(asked), timeout_ms=REQUEST_TIMEOUT_MS
            )
        except KafkaError as error:
            log.warning("AssignReplicasToDirs was not answered: %s", error)
            return []
        if response.error_code != ErrorCode.NONE:
            log.info("AssignReplicasToDirs was answered %s", ErrorCode(response.error_code).name)
            return []
        return [
            (topic.topic_id, row.partition_index)
            for directory in response.directories
            for topic in directory.topics
            for row in topic.partitions
            if row.error_code == ErrorCode.NONE or row.error_code in OVERTAKEN
        ]

    def _request(self, asked: Mapping[Replica, bytes]) -> AssignReplicasToDirsRequest:
        directories: dict[bytes, dict[bytes, list[PartitionDataRequest]]] = {}
        for (topic_id, index), directory_id in asked.items():
            rows = directories.setdefault(directory_id, {}).setdefault(topic_id, [])
            rows.append(PartitionDataRequest(partition_index=index))
        return AssignReplicasToDirsRequest(
            broker_id=self._node_id,
            broker_epoch=self._broker_epoch(),
            directories=[
                DirectoryDataRequest(
                    id=directory_id,
                    topics=[TopicDataRequest(topic_id=topic_id, partitions=rows) for topic_id, rows in topics.items()],
                )
                for directory_id, topics in directories.items()
            ],
        )

    async def _pause(self) -> None:
        over = asyncio.Event()
        timer = self._world.clock.call_later(RETRY_MS, over.set)
        try:
            await over.wait()
        finally:
            timer.cancel()
