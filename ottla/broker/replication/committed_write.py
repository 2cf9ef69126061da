"""Batches that this broker itself writes to a partition that any broker may lead, with acks=all."""

from __future__ import annotations

import asyncio
from typing import Any

from ottla.broker.cluster.channels import BrokerChannels
from ottla.broker.metadata_cache import NO_LEADER, MetadataCache
from ottla.broker.replication.delayed_produce import DelayedProduce
from ottla.broker.replication.replicas import Replicas
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.slotted import entity
from ottla.server.clock import TimerWheel
from ottla.server.world import World
from ottla.storage.errors import StorageFailure

ACKS_ALL = -1
REQUEST_TIMEOUT_MS = 30_000


@entity
class CommittedWrites:
    """Writes to partitions, here or through the channel to their leader."""

    world: World
    metadata: MetadataCache
    replicas: Replicas
    channels: BrokerChannels
    wheel: TimerWheel

    async def write(self, topic: str, topic_id: bytes, partition: int, batch: bytes) -> int:
        """Return the offset of the batch once it is committed.

        Raises:
            KafkaError: the batch is not known to be committed. It may be all the same, because a response may have been lost.
        """
        leader, _ = self.metadata.leader_and_epoch(topic, partition)
        if leader == NO_LEADER:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
        if leader == self.metadata.node_id:
            return await self._append(topic, topic_id, partition, batch)
        data = TopicProduceData(topic, topic_id, [PartitionProduceData(partition, batch)])
        request = ProduceRequest(acks=ACKS_ALL, timeout_ms=REQUEST_TIMEOUT_MS, topic_data=[data])
        return _offset_in(await self.channels.request(leader, request))

    async def _append(self, topic: str, topic_id: bytes, index: int, batch: bytes) -> int:
        partition = self.replicas.lookup(topic, topic_id, index)
        try:
            appended = partition.append(batch, ACKS_ALL, self.world.clock.wall_ms())
        except StorageFailure as failure:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure)) from failure
        errors: list[ErrorCode] = []
        committed = asyncio.Event()
        DelayedProduce(
            [(partition.when_committed, appended.last_offset, errors.append)],
            REQUEST_TIMEOUT_MS,
            self.wheel,
            committed.set,
        )
        await committed.wait()
        if errors and errors[0]:
            raise KafkaError(errors[0])
        return appended.first_offset


def _offset_in(response: Any) -> int:
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                raise KafkaError(ErrorCode(partition.error_code))
            return int(partition.base_offset)
    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
