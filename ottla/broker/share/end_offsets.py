"""The ends of partitions' logs as their leaders have them: the lag of share groups is counted from these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ottla.broker.cluster.broker_channels import BrokerChannels
from ottla.broker.metadata_cache import MetadataCache
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.server.network.reply import Reply
from ottla.server.world import World

LATEST = -1
CONSUMER = -1

Partition = tuple[str, int]
Offsets = Mapping[Partition, int | KafkaError]


class EndOffsets:
    """End offsets, here or at other brokers; `local` gives the high watermark of a partition that this broker leads, and raises KafkaError if it does not."""

    def __init__(
        self,
        world: World,
        node_id: int,
        metadata: MetadataCache,
        channels: BrokerChannels,
        local: Callable[[Partition], int],
    ) -> None:
        self._world = world
        self._node_id = node_id
        self._metadata = metadata
        self._channels = channels
        self._local = local

    def find(self, partitions: Iterable[Partition]) -> Reply[Offsets]:
        found: dict[Partition, int | KafkaError] = {}
        remote: dict[int, list[Partition]] = {}
        for partition in partitions:
            leader, _ = self._metadata.leader_and_epoch(*partition)
            if leader != self._node_id:
                remote.setdefault(leader, []).append(partition)
                continue
            try:
                found[partition] = self._local(partition)
            except KafkaError as error:
                found[partition] = error
        reply: Reply[Offsets] = Reply()
        if remote:
            self._world.spawn(self._ask_all(remote, found, reply), "end offsets")
        else:
            reply.complete(found)
        return reply

    async def _ask_all(
        self, remote: dict[int, list[Partition]], found: dict[Partition, int | KafkaError], reply: Reply[Offsets]
    ) -> None:
        for leader, partitions in remote.items():
            try:
                found.update(_offsets(await self._channels.request(leader, _request(partitions))))
            except KafkaError as error:
                found.update(dict.fromkeys(partitions, error))
        reply.complete(found)


def _request(partitions: list[Partition]) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for name, index in partitions:
        topics.setdefault(name, []).append(ListOffsetsPartition(partition_index=index, timestamp=LATEST))
    return ListOffsetsRequest(
        replica_id=CONSUMER, topics=[ListOffsetsTopic(name=name, partitions=rows) for name, rows in topics.items()]
    )


def _offsets(response: Any) -> dict[Partition, int | KafkaError]:
    return {
        (topic.name, row.partition_index): KafkaError(ErrorCode(row.error_code)) if row.error_code else row.offset
        for topic in response.topics
        for row in topic.partitions
    }
