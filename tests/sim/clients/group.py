"""The committed offsets of a consumer group as a register: a read returns the offset that was acknowledged, or a newer one
(invariant 39).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from tests.histories import Violation
from tests.sim.clients.connection import BACKOFF_SECONDS, Client, Unreachable
from tests.sim.history import TopicPartition

GROUP = 0


class OffsetKeeper(Client):
    """Commits growing offsets for one partition, from outside of any generation, and reads them back."""

    partition: TopicPartition = ("", 0)
    group = "group"
    pause_seconds = 1.0
    #: The epoch in which that broker coordinates the group, if it does so by the newest metadata. A coordinator that is cut off
    #: answers reads from the metadata it has, as Kafka's does.
    leadership: Callable[[int], object] = staticmethod(lambda node: None)

    def start(self) -> None:
        self.acknowledged = -1
        self.attempted = -1
        super().start()

    async def run(self) -> None:
        while not self.stopping:
            await self.pause(self.pause_seconds)
            if self.rng.random() < 0.6:
                await self._commit(self.attempted + self.rng.randint(1, 9))
            else:
                await self.fetch()

    async def _commit(self, offset: int) -> None:
        """Make one attempt: if the response is lost, it is unknown whether the offset was committed."""
        topic, index = self.partition
        operation = self.history.begin(self.name, "commit", (self.group, topic, index, offset))
        try:
            node = await self.coordinator(self.group, GROUP)
            topic_id = await self._topic_id(topic)
            row = OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
            request = OffsetCommitRequest(
                group_id=self.group,
                topics=[OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=[row])],
            )
            self.attempted = offset
            response = await self.ask_node(node, request)
        except Unreachable as failure:
            self.history.end(operation, "info", str(failure))
            await asyncio.sleep(BACKOFF_SECONDS)
            return
        code = ErrorCode(response.topics[0].partitions[0].error_code)
        if code is ErrorCode.NONE:
            self.acknowledged = offset
            self.history.end(operation, "ok")
        elif code.retriable:
            self.history.end(operation, "info", code.name)
            await asyncio.sleep(BACKOFF_SECONDS)
        else:
            raise Violation("39", f"{self.name} commits {offset} and is answered {code.name}")

    async def _topic_id(self, topic: str) -> bytes:
        if topic not in self.topic_ids:
            await self.refresh([topic])
        if topic not in self.topic_ids:
            raise Unreachable(f"{topic} is not known yet")
        return self.topic_ids[topic]

    async def fetch(self) -> bool:
        """Fetch, check the response, and return whether there was one."""
        topic, index = self.partition
        acknowledged = self.acknowledged
        try:
            node = await self.coordinator(self.group, GROUP)
            rows = [
                OffsetFetchRequestTopics(name=topic, topic_id=await self._topic_id(topic), partition_indexes=[index])
            ]
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=self.group, topics=rows)])
            leadership = self.leadership(node)
            response = await self.ask_node(node, request)
        except Unreachable:
            return False
        group = response.groups[0]
        code = ErrorCode(group.error_code or group.topics[0].partitions[0].error_code)
        if code is not ErrorCode.NONE:
            if not code.retriable:
                raise Violation("39", f"{self.name} fetches and is answered {code.name}")
            return False
        offset = group.topics[0].partitions[0].committed_offset
        self.history.note(f"{self.name} finds {offset} committed")
        if leadership is None or self.leadership(node) != leadership:
            return False
        if not acknowledged <= offset <= self.attempted:
            raise Violation(
                "39", f"{self.name} finds {offset}: acknowledged is {acknowledged}, the last attempt {self.attempted}"
            )
        # What was read is a promise, too.
        self.acknowledged = max(self.acknowledged, offset)
        return True
