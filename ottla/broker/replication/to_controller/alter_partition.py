"""AlterPartition requests to the controller: a compare-and-set of ISRs, many partitions in one request, one request at a time (KIP-497).

A leader proposes an ISR. Until the controller's response, or newer metadata, its high watermark waits for the maximal ISR, the
union of committed and proposed members (replication/isr.py). Proposals without a response are sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from ottla.broker.cluster.controller_channel import ControllerChannel
from ottla.broker.replication.isr import ANY_EPOCH
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.to_controller.until_answered import UntilAnswered
from ottla.controller.metadata.cluster import ClusterImage
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionDataRequest,
    TopicDataRequest,
)
from ottla.server.world import World

#: Kafka's AlterPartitionManager retries after the same time.
RETRY_MS = 50

#: The sent proposals: the identity of the set object shows whether a response is for an older proposal.
Asked: TypeAlias = dict[tuple[bytes, int], tuple[Partition, frozenset[int]]]


class AlterPartitionSender:
    """The ISR proposals of one node to the controller."""

    def __init__(
        self,
        world: World,
        node_id: int,
        controller: ControllerChannel,
        broker_epoch: Callable[[], int],
        cluster: Callable[[], ClusterImage],
    ) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._cluster = cluster
        self._proposing: UntilAnswered[Partition, None] = UntilAnswered(
            world, controller, "AlterPartition", self._ask, retry_ms=RETRY_MS
        )

    def may_be_in_sync(self, replica_id: int, broker_epoch: int) -> bool:
        """Returns False if the replica's broker is fenced, shutting down, or another process than the one that fetched (KIP-903)."""
        broker = self._cluster().brokers.get(replica_id)
        return broker is not None and broker.active and broker_epoch in (ANY_EPOCH, broker.epoch)

    def submit(self, partition: Partition) -> None:
        """Send `partition.proposed_isr`."""
        self._proposing.enqueue(partition, None)

    def close(self) -> None:
        self._proposing.close()

    async def _ask(self, partitions: dict[Partition, None]) -> Iterable[Partition]:
        """Sends the proposals; returns those to retry: without a response, or rejected for a transient reason."""
        asked = [partition for partition in partitions if partition.proposed_isr is not None]
        if not asked:
            return ()
        request, by_key = self._request(asked)
        response: AlterPartitionResponse | None = await self._proposing.answer(request)
        if response is None:
            return asked
        again = []
        for topic in response.topics:
            for answer in topic.partitions:
                partition, proposed = by_key.pop((topic.topic_id, answer.partition_index), (None, None))
                if partition is None or partition.proposed_isr is not proposed:
                    continue  # newer metadata arrived before the response
                if answer.error_code == ErrorCode.NONE:
                    partition.isr_altered(answer.leader_epoch, answer.partition_epoch, answer.isr)
                elif partition.isr_rejected(ErrorCode(answer.error_code)):
                    again.append(partition)
        return again

    def _request(self, partitions: list[Partition]) -> tuple[AlterPartitionRequest, Asked]:
        request = AlterPartitionRequest(broker_id=self._node_id, broker_epoch=self._broker_epoch())
        topics: dict[bytes, TopicDataRequest] = {}
        by_key: Asked = {}
        for partition in partitions:
            assert partition.proposed_isr is not None
            topic = topics.get(partition.topic_id)
            if topic is None:
                topic = topics[partition.topic_id] = TopicDataRequest(topic_id=partition.topic_id, partitions=[])
                request.topics.append(topic)
            by_key[partition.topic_id, partition.index] = (partition, partition.proposed_isr)
            topic.partitions.append(
                PartitionDataRequest(
                    partition_index=partition.index,
                    leader_epoch=partition.leader_epoch,
                    new_isr_with_epochs=[
                        BrokerState(broker_id=replica, broker_epoch=self._epoch_of(partition, replica))
                        for replica in sorted(partition.proposed_isr)
                    ],
                    partition_epoch=partition.partition_epoch,
                )
            )
        return request, by_key

    def _epoch_of(self, partition: Partition, replica: int) -> int:
        if replica == self._node_id:
            return self._broker_epoch()
        follower = partition.followers.get(replica)
        return ANY_EPOCH if follower is None else follower.broker_epoch
